use std::path::Path;

use super::sections::MissingFile;
use super::units::Units;
use crate::error::hint;
use crate::error::variable_error::DebugGap;
use crate::image::Image;

pub(super) const MAX_LISTED: usize = 6;

/// The variables of one file.
pub struct Variables<'d> {
    pub(super) image: &'d Image,
    pub(super) units: Units<'d>,
    pub(super) is_cut: bool,
    pub(super) missing: Option<MissingFile>,
    pub(super) path: Option<&'d Path>,
}

impl Variables<'_> {
    pub(super) fn hint(&self) -> Option<DebugGap> {
        if self.is_cut {
            return Some(DebugGap::TooLarge);
        }
        let files = self.units.skeletons();
        if files > 0 {
            return Some(DebugGap::Split { files });
        }
        if let Some(file) = &self.missing {
            let remedy = hint::shared_file(&file.name, &file.build_id);
            return Some(DebugGap::SharedFile {
                name: file.name.clone(),
                remedy,
            });
        }
        let has_none = self.units.is_empty();
        let remedy = has_none.then(|| self.image.debug_hint(self.path?))?;
        remedy.map(|remedy| DebugGap::Package { remedy })
    }
}
