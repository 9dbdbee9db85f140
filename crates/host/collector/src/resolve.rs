//! Resolves specs, which select functions, to probes of functions in mapped files.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use tiptoe_event::ShellWord;
use tiptoe_event::spec::{Function as FunctionSpec, Kind, ProbeSpec, Spec};
use tiptoe_session::{FunctionNote, Note};
use tiptoe_symbol::{Function, glob};
use tiptoe_sys::host::procfs::Process;

use crate::error::{Error, InsteadOfFunction, Reason};
use crate::module::{Module, Object, started_as};
use crate::planner::{Follow, MOST_BY_VALUE};
pub use deferred_specs::{later, may_come_later};
pub use followable::Limits;

mod deferred_specs;
mod followable;
mod gate;
mod inlined;
mod name;
mod parameters;
mod probe_position;
mod readers;

pub use gate::below;

#[derive(Clone)]
pub struct Probe {
    /// The resolved spec, such as `uprobe:redis-server:dictFind`.
    pub event: String,
    pub names: Vec<String>,
    pub notes: Vec<Note>,
    pub object: Rc<Object>,
    pub bias: u64,
    pub function: Function,
    pub offset: u64,
    pub follow: Follow,
}

impl Probe {
    pub fn address(&self) -> u64 {
        self.place_in_file().wrapping_add(self.bias)
    }

    pub fn place_in_file(&self) -> u64 {
        self.function.address + self.offset
    }

    /// Returns a probe that counts only entries.
    pub fn of_entries(mut self) -> Probe {
        if self.offset == 0 && self.follow.is_followed() {
            self.offset = probe_position::counted_at(&self.object, &self.function);
        }
        Probe {
            follow: self.follow.entries(),
            ..self
        }
    }

    pub fn file_offset(&self) -> u64 {
        self.function.offset_in_file + self.offset
    }
}

#[derive(Default)]
pub struct Resolution {
    /// Whether the thread that loaded the libraries waits for the probes. If so, debug information must not be read,
    /// because that takes long.
    pub are_late: bool,
    pub probes: Vec<Probe>,
    /// IFUNCs. The implementation that an IFUNC chose is known only inside the target.
    pub ifuncs: Vec<Probe>,
    pub refused: Vec<(String, Reason)>,
    pub notes: Vec<Note>,
    pub met: Vec<String>,
    by_value: usize,
    /// The addresses that have a probe, with the kinds of their events.
    seen: BTreeMap<u64, Kind>,
}

impl Resolution {
    /// Limits the number of functions that are timed by value, because such functions need many counters.
    fn within_room(&mut self, follow: Follow, event: &str) -> Follow {
        self.by_value += usize::from(follow == Follow::TimedValues);
        if follow != Follow::TimedValues || self.by_value <= MOST_BY_VALUE {
            return follow;
        }
        let reason = Reason::EntriesOnly(Box::new(Reason::ManyByValue(MOST_BY_VALUE)));
        self.refused.push((event.to_owned(), reason));
        Follow::No
    }
}

/// `entries` says what to record of each entry of a function. With `may_match_later`, a spec that only a later
/// library may match is no error.
pub fn resolve(
    specs: &[ProbeSpec<'_>],
    entries: Follow,
    process: Process,
    modules: &[Module],
    may_match_later: bool,
) -> Result<Resolution, Error> {
    let follow = |spec: &Spec| followable::wanted(spec, entries);
    let resolved = resolve_all(specs, follow, process, modules, may_match_later)?;
    resolved.read_parameters();
    Ok(resolved)
}

fn resolve_all(
    specs: &[ProbeSpec<'_>],
    follow: impl Fn(&Spec) -> Follow,
    process: Process,
    modules: &[Module],
    may_match_later: bool,
) -> Result<Resolution, Error> {
    let mut resolved = Resolution::default();
    let mut waiting = Vec::new();
    let mut notes = Vec::new();
    for probe in specs {
        let spec = probe.spec;
        let mut find = |spec: &Spec| find(&mut resolved, spec, follow(spec), process, modules);
        let found = find(&spec).or_else(|error| {
            let found = probe.other_readings().any(|spec| find(&spec).is_ok());
            if found { Ok(()) } else { Err(error) }
        });
        let found = found.or_else(|error| {
            let library = only_in_libc(&spec, modules).ok_or(error)?;
            let within = Spec {
                binary: Some(&library.name),
                ..spec
            };
            find(&within)?;
            let note = FunctionNote::FoundInLibrary {
                function: probe.text.to_owned(),
                spec: format!("{}:{}", library.name, wanted(&spec)),
            };
            notes.push(note.into());
            Ok(())
        });
        match found {
            Ok(()) => resolved.met.push(probe.text.to_owned()),
            Err(_) if may_match_later && deferred_specs::may_come(&spec, process, modules) => {
                waiting.push(probe)
            }
            Err(error) => return Err(error),
        }
    }
    resolved.notes.append(&mut notes);
    match resolved.refused.first() {
        Some((event, why))
            if resolved.probes.is_empty() && resolved.ifuncs.is_empty() && waiting.is_empty() =>
        {
            let (event, why) = (event.clone(), why.clone());
            Err(Error::NoProbe { event, why })
        }
        _ => Ok(resolved),
    }
}

/// Fails if the spec has no match.
fn find(
    resolved: &mut Resolution,
    spec: &Spec,
    follow: Follow,
    process: Process,
    modules: &[Module],
) -> Result<(), Error> {
    let chosen: Vec<&Module> = modules
        .iter()
        .filter(|module| matches(spec.binary, process, module))
        .collect();
    if chosen.is_empty() {
        return Err(no_binary(spec.binary, process, modules));
    }
    let mut failure = None;
    let mut found = false;
    for module in chosen {
        match module.object.image.find(&wanted(spec)) {
            Ok(functions) => {
                found = true;
                add(resolved, spec, follow, module, modules, functions);
            }
            Err(error) => {
                failure.get_or_insert_with(|| not_found(spec, module, modules, error));
            }
        }
    }
    match failure.filter(|_| !found) {
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}

fn wanted(spec: &Spec) -> String {
    match spec.function {
        FunctionSpec::Name(name) | FunctionSpec::Glob(name) => name.to_owned(),
        FunctionSpec::Offset(offset) => format!("{offset:#x}"),
    }
}

/// Returns whether a module is the named binary. The name may be a path (links are followed), a file name, a soname,
/// a displayed name, or a glob of these. For the program, the name may also be the comm, or the name by which the
/// program was started.
pub fn matches(binary: Option<&str>, process: Process, module: &Module) -> bool {
    let Some(binary) = binary else {
        return module.is_program;
    };
    let soname = module.object.image.header().soname.as_deref();
    let base = module.path.file_name().map(OsStrExt::as_bytes);
    // Compares bytes, because a file's name need not be UTF-8.
    let names = [
        soname.map(str::as_bytes),
        base,
        Some(module.path.as_os_str().as_bytes()),
        Some(module.name.as_bytes()),
    ];
    let mut names = names.into_iter().flatten();
    if glob::is_glob(binary) {
        return names.any(|name| glob::matches(binary, name));
    }
    if names.any(|name| name == binary.as_bytes()) {
        return true;
    }
    let same_file = Path::new(binary)
        .canonicalize()
        .is_ok_and(|path| path == module.path);
    let named_so =
        || process.comm().is_ok_and(|comm| comm == binary) || started_as(process, binary);
    (binary.contains('/') && same_file) || (module.is_program && named_so())
}

fn unreadable(binary: Option<&str>, process: Process) -> Option<tiptoe_sys::host::Error> {
    let (maps, exe) = (process.maps().ok()?, process.exe().ok()?);
    let mut files = maps.iter().filter(|mapping| mapping.perms.exec);
    let found = files.find(|mapping| {
        mapping.file().is_some_and(|file| match binary {
            Some(binary) => file.file_name().is_some_and(|name| name == binary),
            None => file == exe,
        })
    })?;
    process.open_mapped(found).err()
}

fn add(
    resolved: &mut Resolution,
    spec: &Spec,
    follow: Follow,
    module: &Module,
    modules: &[Module],
    functions: Vec<Cow<'_, Function>>,
) {
    let limits = Limits::new(module, modules);
    let image = &module.object.image;
    let placed = functions
        .into_iter()
        .map(|function| probe_position::home(image, function, spec.offset));
    let (functions, offsets): (Vec<_>, Vec<_>) = placed.unzip();
    let shown = name::of(spec, &functions);
    for ((function, offset), shown) in functions.into_iter().zip(offsets).zip(shown) {
        let event = name::event(spec.kind, &module.name, &shown, offset);
        if let Err(reason) = probe_position::check(&module.object, &function, offset) {
            resolved.refused.push((event, reason));
            continue;
        }
        let allowed = limits.allowed(&function, follow, &event, &mut resolved.refused);
        let Some(follow) = allowed else {
            continue;
        };
        let offset = match module.is_program && offset == 0 && !follow.is_followed() {
            true => probe_position::counted_at(&module.object, &function),
            false => offset,
        };
        let mut probe = Probe {
            event,
            names: name::others(&function, &shown),
            notes: match resolved.are_late {
                true => Vec::new(),
                false => inlined::note(spec, module, &function).into_iter().collect(),
            },
            object: module.object.clone(),
            bias: module.bias,
            function: function.into_owned(),
            offset,
            follow,
        };
        if is_mapped_elsewhere(&probe, module, modules) {
            continue;
        }
        if let Some(kind) = resolved.seen.get(&probe.address()) {
            if *kind != spec.kind {
                resolved
                    .refused
                    .push((probe.event, Reason::OtherEvent(*kind)));
            }
            continue;
        }
        resolved.seen.insert(probe.address(), spec.kind);
        probe.follow = resolved.within_room(probe.follow, &probe.event);
        match probe.function.is_ifunc {
            true => resolved.ifuncs.push(probe),
            false => resolved.probes.push(probe),
        }
    }
    note_stripped(resolved, spec, module);
}

/// Returns whether the probe's address is not in this mapping of the module's file, but in another mapping of the
/// file. Node.js maps some pages of its text a second time, at other addresses.
fn is_mapped_elsewhere(probe: &Probe, module: &Module, modules: &[Module]) -> bool {
    let has = |module: &Module| module.contains(probe.place_in_file().wrapping_add(module.bias));
    let mut others = modules
        .iter()
        .filter(|other| other.bias != module.bias && other.object.key == module.object.key);
    others.any(has) && !has(module)
}

fn note_stripped(resolved: &mut Resolution, spec: &Spec, module: &Module) {
    let (image, path) = (&module.object.image, || module.path.display().to_string());
    let is_glob = matches!(spec.function, FunctionSpec::Glob(_));
    let missing = image.missing_symbols(&module.path).filter(|_| is_glob);
    let no_symbols = missing.map(|missing| FunctionNote::NoSymbols {
        path: path(),
        nameless: missing.nameless as u64,
        functions: missing.functions as u64,
        remedy: missing.remedy,
    });
    let cut = image
        .is_cut()
        .then(|| FunctionNote::FileTooLarge { path: path() });
    for note in [no_symbols, cut].into_iter().flatten().map(Note::from) {
        if !resolved.notes.contains(&note) {
            resolved.notes.push(note);
        }
    }
}

fn not_found(
    spec: &Spec,
    module: &Module,
    modules: &[Module],
    error: tiptoe_symbol::Error,
) -> Error {
    let instead = elsewhere(spec, modules)
        .or_else(|| inlined::everywhere(spec, module))
        .or_else(|| incomplete(module));
    Error::NoFunction {
        path: module.path.clone(),
        error,
        instead: instead.map(Box::new),
    }
}

/// Returns libc if only libc has the function of a spec without a binary. For other libraries, the spec must name the
/// library, because a spec without a binary is not resolved again when a library is reopened.
fn only_in_libc<'m>(spec: &Spec, modules: &'m [Module]) -> Option<&'m Module> {
    let (None, FunctionSpec::Name(name)) = (spec.binary, spec.function) else {
        return None;
    };
    let has = |module: &&Module| module.object.image.find(name).is_ok();
    let mut homes = modules.iter().filter(has);
    let home = homes
        .next()
        .filter(|home| home.name.starts_with("libc.so"))?;
    homes.next().is_none().then_some(home)
}

/// Returns what a spec without a binary, which searches only the program, may have meant: a file of this name, or
/// functions of other modules.
fn elsewhere(spec: &Spec, modules: &[Module]) -> Option<InsteadOfFunction> {
    let (None, FunctionSpec::Name(name) | FunctionSpec::Glob(name)) = (spec.binary, spec.function)
    else {
        return None;
    };
    if modules.iter().any(|module| module.name == name) {
        let all = ShellWord(format!("{name}:*").as_bytes()).to_string();
        let name = name.to_owned();
        return Some(InsteadOfFunction::File { name, all });
    }
    let has = |module: &&Module| module.object.image.find(name).is_ok();
    let names = modules.iter().filter(has).map(|module| &module.name);
    let specs: Vec<String> = names.map(|home| spec_word(home, name)).collect();
    (!specs.is_empty()).then_some(InsteadOfFunction::Elsewhere(specs))
}

/// Returns a spec to paste into a shell. The spec must be quoted, because the program chose its libraries' names.
fn spec_word(home: &str, name: &str) -> String {
    format!("`{}`", ShellWord(format!("{home}:{name}").as_bytes()))
}

fn incomplete(module: &Module) -> Option<InsteadOfFunction> {
    let image = &module.object.image;
    if image.is_cut() {
        return Some(InsteadOfFunction::CutFile);
    }
    let missing = image.missing_symbols(&module.path)?;
    Some(InsteadOfFunction::Stripped {
        nameless: missing.nameless,
        functions: missing.functions,
        remedy: missing.remedy,
    })
}

pub fn no_binary(binary: Option<&str>, process: Process, modules: &[Module]) -> Error {
    if let Some(why) = unreadable(binary, process) {
        return Error::UnreadableBinary(why);
    }
    Error::NoBinary {
        pid: process.pid(),
        binary: binary.unwrap_or("the program").to_owned(),
        mapped: modules.iter().map(|module| module.name.clone()).collect(),
        is_new: false,
    }
}
