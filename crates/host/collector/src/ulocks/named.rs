//! Finds a lock's address by its name, as [`super::Names`] prints it.

use tiptoe_sys::host::procfs::Mapping;

use crate::error::Reason;
use crate::module::Module;

/// Accepts `[MODULE:]VARIABLE[+0xOFFSET]`, `MODULE:0xOFFSET` or `0xADDRESS`. Text after `0xADDRESS` is ignored,
/// because tiptoe prints a description after an address.
pub fn address_of(lock: &str, modules: &[Module], maps: &[Mapping]) -> Result<u64, Reason> {
    let first = lock.split_whitespace().next().unwrap_or_default();
    let (word, address) = match number(first) {
        Some(address) => (first, address),
        None => (lock, of_variable(lock, modules)?),
    };
    let is_mapped = |mapping: &&Mapping| mapping.contains(address) && mapping.perms.write;
    match maps.iter().find(is_mapped) {
        Some(_) => Ok(address),
        None => Err(Reason::NotWritable {
            name: word.to_owned(),
            address,
        }),
    }
}

fn number(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}

fn of_variable(word: &str, modules: &[Module]) -> Result<u64, Reason> {
    let (module, name) = match word
        .split_once(':')
        .filter(|(_, name)| !name.starts_with(':'))
    {
        Some((module, name)) => (Some(module), name),
        None => (None, word),
    };
    let (name, offset) = match name.rsplit_once('+') {
        Some((name, offset)) => (name, number(offset).ok_or(Reason::BadOffset)?),
        None => (name, 0),
    };
    let wanted = modules
        .iter()
        .filter(|m| module.is_none_or(|module| m.name == module));
    let mut found: Vec<(&Module, u64)> = Vec::new();
    for module in wanted {
        let linked = match number(name) {
            Some(linked) => vec![linked],
            None => module.object.image.variables_named(name),
        };
        let here = linked
            .into_iter()
            .map(|linked| linked.wrapping_add(module.bias));
        found.extend(here.map(|address| (module, address)));
    }
    match found[..] {
        [(_, address)] => address
            .checked_add(offset)
            .ok_or_else(|| Reason::BeyondMemory(word.to_owned())),
        [] => Err(Reason::NoVariable(word.to_owned())),
        _ => {
            let all = found.iter().map(|(m, at)| format!("{at:#x} ({})", m.name));
            let (name, all) = (word.to_owned(), all.collect());
            Err(Reason::ManyVariables { name, all })
        }
    }
}
