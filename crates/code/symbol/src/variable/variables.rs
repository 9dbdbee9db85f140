//! The variables of one file.

use std::path::Path;

use super::sections::MissingFile;
use super::units::Units;
use crate::hint;
use crate::image::Image;

/// The most functions or variables that an error lists.
pub(super) const MAX_LISTED: usize = 6;

/// The variables of one file, ready for lookups.
pub struct Variables<'d> {
    pub(super) image: &'d Image,
    pub(super) units: Units<'d>,
    /// Whether parts of the debug information exceeded a limit.
    pub(super) is_cut: bool,
    pub(super) missing: Option<MissingFile>,
    /// The image's own path.
    pub(super) path: Option<&'d Path>,
}

impl Variables<'_> {
    /// Returns what the user may do to get more debug information.
    pub(super) fn hint(&self) -> Option<String> {
        if self.is_cut {
            return Some("a part of the debug information is too large to be read".to_owned());
        }
        let stubs = self.units.skeletons();
        if stubs > 0 {
            return Some(format!(
                "{stubs} of its source files have their debug information in `.dwo` files, \
                 which are not read (build without -gsplit-dwarf)"
            ));
        }
        if let Some(file) = &self.missing {
            return Some(format!(
                "a part of the debug information is in `{}`, which does not exist: {}",
                file.name,
                hint::shared_file(&file.name, &file.build_id)
            ));
        }
        let has_none = self.units.is_empty();
        let remedy = has_none.then(|| self.image.debug_hint(self.path?))?;
        remedy.map(|remedy| format!("the file has no debug information: {remedy}"))
    }
}
