//! What stands at an address: code, and locks.

use std::path::Path;

use tiptoe_sys::host::procfs::Mapping;
use tiptoe_wire::Site;

use super::Kind;
use crate::module::Module;

/// The bits of [`tiptoe_wire::futex::entry::VIA`] that are an address.
const ADDRESS: u64 = (1 << 47) - 1;

/// What a process has where, as it was looked at last.
pub struct Names {
    /// Its files with code.
    pub modules: Vec<Module>,
    /// Its mappings.
    pub maps: Vec<Mapping>,
    /// Where our own trampolines are, by whom they stand.
    pub sites: Vec<Site>,
}

impl Names {
    /// The name of the function in libc that a wait was made by; empty where it has none.
    pub fn via(&self, via: u64) -> String {
        let address = via & ADDRESS;
        let ours = self.sites.iter().find(|site| {
            let code = site.trampoline..=site.trampoline + u64::from(site.code_len);
            code.contains(&address)
        });
        let address = ours.map_or(address, |site| site.address + 1);
        let function = self.function(address.wrapping_sub(1));
        function.map_or_else(String::new, |(_, name, _)| name)
    }

    /// The module, its function and the offset in it.
    fn function(&self, address: u64) -> Option<(&Module, String, u64)> {
        let mut modules = self.modules.iter();
        let module = modules.find(|m| m.text.iter().any(|text| text.contains(&address)))?;
        let linked = address.wrapping_sub(module.bias);
        let function = module.object.image.function_containing(linked)?;
        let name = function.display_name().to_string();
        Some((module, name, linked - function.address))
    }

    /// A call site, by the address that it returns to.
    pub fn code(&self, address: u64) -> String {
        match self.function(address.wrapping_sub(1)) {
            Some((module, name, offset)) => format!("{}:{name}+{:#x}", module.name, offset + 1),
            None => match self.mapping(address) {
                Some((path, offset)) => format!("{path}+{offset:#x}"),
                None => format!("{address:#x}"),
            },
        }
    }

    /// A lock, by the address that is waited at.
    pub fn lock(&self, address: u64, kind: &Kind) -> String {
        if let Some(module) = self.modules.iter().find(|m| self.is_of(m, address)) {
            let linked = address.wrapping_sub(module.bias);
            let variable = module.object.image.variable_at(linked);
            let variable = variable.map(|(name, offset)| (name, kind.beginning(offset)));
            return match variable {
                Some((name, 0)) => format!("{}:{name}", module.name),
                Some((name, offset)) => format!("{}:{name}+{offset:#x}", module.name),
                None => format!("{}:{linked:#x}", module.name),
            };
        }
        match self.mapping(address) {
            Some((path, _)) => format!("{address:#x} {path}"),
            None => format!("{address:#x}"),
        }
    }

    /// Whether an address is in a mapping of a module's file, or in the zeroed memory that
    /// stands right behind one.
    fn is_of(&self, module: &Module, address: u64) -> bool {
        let behind = self
            .maps
            .partition_point(|mapping| mapping.start <= address);
        let Some((here, before)) = self.maps[..behind].split_last() else {
            return false;
        };
        let of_file = |mapping: &Mapping| mapping.file() == Some(&module.path);
        let zeroed = here.path.is_none()
            && before
                .last()
                .is_some_and(|m| m.end == here.start && of_file(m));
        here.contains(address) && (of_file(here) || zeroed)
    }

    /// What is mapped at an address, and how far behind its beginning that is.
    fn mapping(&self, address: u64) -> Option<(String, u64)> {
        let mapping = self.maps.iter().find(|mapping| mapping.contains(address))?;
        let name = match mapping.path.as_deref() {
            Some(path) if mapping.inode != 0 => name(path),
            Some(path) => path.display().to_string(),
            None => "[anonymous]".to_owned(),
        };
        Some((name, address - mapping.start))
    }
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}
