//! The files that a target has mapped executable, and their functions.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use memchr::memmem;
use tiptoe_attach::resident::is_ours;
use tiptoe_attach::target_files::{TargetFiles, content};
use tiptoe_patch::{FunctionCode, Padding, padding};
use tiptoe_price::own;
use tiptoe_symbol::variable::Variables;
use tiptoe_symbol::{
    BudgetExceeded, Content, DebugSource, Function, Image, InlinedPlaces, NoDebugFiles, Origins,
    Table, section, unwind_table,
};
use tiptoe_sys::host::procfs::{Mapping, Process};

use crate::error::{Error, ObjectFault, Reason};

mod own_calls;
mod program_name;

pub use own_calls::{ARCH_PRCTL, HOOKED_EVERYWHERE, OwnCalls, SYSCALL, may_call, with_last_call};
use program_name::name_of;
pub use program_name::started_as;

/// A parsed file, shared by all processes that map it.
pub struct Object {
    pub image: Image,
    code: Content,
    source: TargetFiles,
    unwind_table: OnceCell<Table>,
    /// By a function's link-time address: how its return address is read (`resolve::readers`); `None` if nothing
    /// reads that address.
    pub read_returns: RefCell<HashMap<u64, Option<Reason>>>,
    /// Must stay open, because uprobes are placed by its descriptor.
    pub file: Rc<File>,
    pub key: FileKey,
    is_go: OnceCell<bool>,
    linked_libc: OnceCell<Option<u64>>,
    ports: OnceCell<Option<Range<u64>>>,
    described: DescribedFunctions,
    own_calls: OnceCell<OwnCalls>,
}

#[derive(Default)]
struct DescribedFunctions {
    inlined: OnceCell<Result<HashMap<u64, InlinedPlaces>, BudgetExceeded>>,
    parameters: OnceCell<HashMap<u64, u8>>,
}

const COPIES: [&str; 3] = [".constprop.", ".isra.", ".part."];

const FIRST_OF_LIBC: &str = "__libc_start_main";

const GO: &[u8] = b"\xff Go buildinf:";
const GO_SECTION: &str = ".go.buildinfo";
/// How much of each writable segment's start is searched for `GO`, if the file has no `GO_SECTION`.
const MOST_SEARCHED: u64 = 1 << 20;

/// Device and inode, as in `/proc/PID/maps`.
pub type FileKey = (u32, u32, u64);

pub fn key_of(mapping: &Mapping) -> FileKey {
    (mapping.dev.major, mapping.dev.minor, mapping.inode)
}

#[derive(Clone)]
pub struct Module {
    pub object: Rc<Object>,
    pub name: String,
    pub path: PathBuf,
    pub bias: u64,
    pub text: Vec<Range<u64>>,
    pub is_program: bool,
}

/// The parsed files of a run.
#[derive(Default)]
pub struct Cache(HashMap<FileKey, Option<Rc<Object>>>);

impl Object {
    fn open(process: Process, mapping: &Mapping, path: &Path) -> Option<Object> {
        let file = process.open_mapped(mapping).ok()?;
        Object::read(file, key_of(mapping), TargetFiles::new(process, path)).ok()
    }

    pub fn of_program(path: &Path) -> Result<Object, Error> {
        let failed = |error: ObjectFault| Error::UnreadableProgram {
            path: path.to_owned(),
            error,
        };
        let file = File::open(path).map_err(|error| failed(error.into()))?;
        let metadata = file.metadata().map_err(|error| failed(error.into()))?;
        let device = metadata.dev();
        let key = (libc::major(device), libc::minor(device), metadata.ino());
        let source = TargetFiles::new(Process::current(), path);
        Object::read(file, key, source).map_err(failed)
    }

    fn read(file: File, key: FileKey, source: TargetFiles) -> Result<Object, ObjectFault> {
        let file = Rc::new(file);
        let content = || content(Rc::clone(&file));
        let image = Image::parse(&content()?, &source)?;
        Ok(Object {
            image,
            code: content()?,
            source,
            unwind_table: OnceCell::new(),
            read_returns: RefCell::default(),
            file,
            key,
            is_go: OnceCell::new(),
            linked_libc: OnceCell::new(),
            ports: OnceCell::new(),
            described: DescribedFunctions::default(),
            own_calls: OnceCell::new(),
        })
    }

    pub fn is_go(&self) -> bool {
        *self.is_go.get_or_init(|| self.has_mark_of_go())
    }

    fn has_mark_of_go(&self) -> bool {
        let content = self.content();
        if section(&content, GO_SECTION).is_some() {
            return true;
        }
        let segments = self.image.layout().segments.iter();
        let mut starts = segments
            .filter(|segment| segment.is_writable)
            .map(|segment| {
                let size = segment.file_size.min(MOST_SEARCHED);
                content.get(segment.offset..segment.offset.checked_add(size)?)
            });
        let has_mark = |start: &[u8]| start.windows(GO.len()).any(|some| some == GO);
        starts.any(|start| start.is_some_and(has_mark))
    }

    fn content(&self) -> Content {
        content(Rc::clone(&self.file)).unwrap_or_default()
    }

    /// Returns the link-time address of a statically linked program's first C library function. All
    /// later functions belong to the C library too, because linkers put it last.
    pub fn linked_libc(&self) -> Option<u64> {
        *self.linked_libc.get_or_init(|| {
            let functions = self.image.with_symbol(FIRST_OF_LIBC);
            functions.first().map(|function| function.address)
        })
    }

    pub fn code_sections(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let sections = self.image.layout().executable.iter();
        sections.filter_map(|section| Some((section.start, self.code_section(section)?)))
    }

    /// Returns the functions whose code contains these bytes, which may begin inside an instruction.
    fn functions_with<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = &'a Function> {
        let found = self.addresses_with(bytes, |_, _| true);
        let functions = found.filter_map(|address| self.image.function_containing(address));
        let mut last = None;
        functions.filter(move |function| last.replace(function.address) != Some(function.address))
    }

    /// Returns the link-time addresses of `bytes` in code. `is_it` filters by the section's code and the position.
    fn addresses_with<'a>(
        &'a self,
        bytes: &'a [u8],
        is_it: impl Fn(&[u8], usize) -> bool + Copy + 'a,
    ) -> impl Iterator<Item = u64> + 'a {
        self.code_sections().flat_map(move |(start, code)| {
            let found = memmem::find_iter(code, bytes).filter(move |at| is_it(code, *at));
            found.map(move |at| start + at as u64)
        })
    }

    pub fn own_calls(&self) -> &OwnCalls {
        self.own_calls.get_or_init(|| OwnCalls::of(self))
    }

    fn code_section(&self, section: &Range<u64>) -> Option<&[u8]> {
        let start = self.image.layout().offset_of(section.start)?;
        let size = section.end - section.start;
        self.code.get(start..start.checked_add(size)?)
    }

    pub fn ports(&self) -> Option<Range<u64>> {
        let look = || section(&self.content(), tiptoe_port::SECTION);
        self.ports.get_or_init(look).clone()
    }

    pub fn variables<R>(&self, ask: impl FnOnce(&Variables<'_>) -> R) -> R {
        self.image.variables(&self.content(), &self.source, ask)
    }

    pub fn origins<R>(&self, ask: impl FnOnce(&Origins<'_>) -> R) -> R {
        self.image.origins(&self.content(), &self.source, ask)
    }

    /// Returns where a function was inlined. Ignores a library's separate debug file, because reading that of a C
    /// library takes longer than many programs run.
    pub fn inlined_places(
        &self,
        function: &Function,
        is_program: bool,
    ) -> Result<Option<&InlinedPlaces>, BudgetExceeded> {
        let source = self.source(is_program);
        let look = || self.image.inlined_places(&self.content(), source);
        let places = self.described.inlined.get_or_init(look).as_ref();
        let places = places.map_err(|error| *error)?;
        Ok(places.get(&function.address))
    }

    /// Returns the places where functions of this name without code of their own were inlined.
    pub fn inlined_everywhere(&self, name: &str, is_program: bool) -> Option<InlinedPlaces> {
        let (image, source) = (&self.image, self.source(is_program));
        let found = image.inlined_everywhere(name, &self.content(), source);
        found.ok().flatten()
    }

    fn source(&self, is_program: bool) -> &dyn DebugSource {
        match is_program {
            true => &self.source,
            false => &NoDebugFiles,
        }
    }

    /// Returns how many integer registers hold a function's parameters at its entry, if debug
    /// information says so and the compiler has kept the parameters.
    pub fn parameter_registers(&self, function: &Function) -> Option<u8> {
        // A compiler's copy of a function takes other parameters than the function.
        if function.is_cold
            || COPIES
                .iter()
                .any(|mark| function.names.iter().any(|name| name.contains(mark)))
        {
            return None;
        }
        let image = &self.image;
        let look = || image.parameter_registers(&self.content(), &self.source);
        let parameters = self.described.parameters.get_or_init(look);
        parameters.get(&function.address).copied()
    }

    pub fn unwind_table(&self) -> &Table {
        let compile = || unwind_table(&self.content());
        self.unwind_table.get_or_init(compile)
    }

    /// Returns a function's code, loaded at `bias`, and the bytes up to the next function.
    pub fn code(&self, function: &Function, bias: u64) -> Option<FunctionCode<'_>> {
        let rest = self.code_from(function.address)?;
        let next = self.image.next_function_after(function.address);
        let next = next.map_or(u64::MAX, |next| next.address - function.address);
        let room = rest.len().min(next as usize);
        let size = match function.size as usize {
            0 => room,
            size => size.min(room),
        };
        Some(FunctionCode {
            address: function.address.wrapping_add(bias),
            bytes: &rest[..room],
            size,
        })
    }

    pub fn code_from(&self, address: u64) -> Option<&[u8]> {
        let mut sections = self.image.layout().executable.iter();
        let section = sections.find(|section| section.contains(&address))?;
        let code = self.code_section(section)?;
        code.get((address - section.start) as usize..)
    }

    pub fn paddings_near(&self, address: u64, bias: u64) -> Vec<Padding> {
        let functions = self.image.functions();
        let near = |function: &&Function| function.end() + 160 > address;
        let start = functions.partition_point(|function| function.address + 4096 < address);
        let candidates = functions[start..]
            .iter()
            .take_while(|f| f.address < address + 160);
        let codes = candidates
            .filter(near)
            .filter_map(|function| self.code(function, bias));
        codes.filter_map(|code| padding(&code)).collect()
    }
}

impl Module {
    pub fn contains(&self, address: u64) -> bool {
        self.text.iter().any(|text| text.contains(&address))
    }

    pub fn function_at(&self, address: u64) -> Option<usize> {
        let linked = address.wrapping_sub(self.bias);
        let functions = self.object.image.functions();
        let found = functions.binary_search_by_key(&linked, |function| function.address);
        found.ok()
    }

    pub fn is_go(&self) -> bool {
        self.is_program && self.object.is_go()
    }

    /// Returns whether this is a program that is always mapped at its link-time address.
    pub fn has_its_place(&self) -> bool {
        self.is_program && !self.object.image.header().position_independent
    }

    /// Returns the program and its libraries for a command that has not called exec yet, at made-up load addresses.
    pub fn before_exec(program: Object, path: PathBuf) -> Vec<Module> {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let path = path.canonicalize().unwrap_or(path);
        let libraries = match &program.image.header().interpreter {
            Some(loader) => listed_libraries(Path::new(loader), &path),
            None => Vec::new(),
        };
        let mut modules = vec![Module::unmapped(program, path, 0)];
        modules[0].is_program = true;
        modules[0].name = name.unwrap_or_default();
        for library in libraries {
            if let Ok(object) = Object::of_program(&library) {
                let distance = modules.len() as u64 * LIBRARY_DISTANCE;
                modules.push(Module::unmapped(object, library, distance));
            }
        }
        modules
    }

    fn unmapped(object: Object, path: PathBuf, bias: u64) -> Module {
        let soname = object.image.header().soname.clone();
        let base = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let name = soname.or(base).unwrap_or_default();
        let object = Rc::new(object);
        Module {
            name,
            object,
            path,
            bias,
            text: Vec::new(),
            is_program: false,
        }
    }
}

const LIBRARY_DISTANCE: u64 = 1 << 40;

/// Lists the libraries that the loader would map, as ldd(1) does.
fn listed_libraries(loader: &Path, program: &Path) -> Vec<PathBuf> {
    let mut list = std::process::Command::new(loader);
    list.arg("--list").arg(program);
    let listed = own::with_helper(|| list.output());
    let text = listed.map(|output| output.stdout).unwrap_or_default();
    text.split(|byte| *byte == b'\n')
        .filter_map(listed_path)
        .collect()
}

/// Parses `libc.so.6 => /lib/libc.so.6 (0x7f…)` as bytes, because a path need not be UTF-8.
fn listed_path(line: &[u8]) -> Option<PathBuf> {
    let arrow = line.windows(4).position(|four| four == b" => ")?;
    let path = &line[arrow + 4..];
    let end = path.windows(4).rposition(|four| four == b" (0x")?;
    Some(OsStr::from_bytes(&path[..end]).into())
}

impl Cache {
    /// Caches files that were read before a command began and are mapped now.
    pub fn adopt(&mut self, before: &[Module], maps: &[Mapping]) -> usize {
        let here = |module: &&Module| {
            let path = module.path.canonicalize().ok();
            let mut mapped = maps.iter().filter(|mapping| mapping.perms.exec);
            let found = mapped.find(|m| m.file().is_some() && m.file() == path.as_deref());
            if let Some(mapping) = found {
                let object = || Some(module.object.clone());
                self.0.entry(key_of(mapping)).or_insert_with(object);
            }
            found.is_some()
        };
        before.iter().filter(here).count()
    }

    fn object(&mut self, process: Process, mapping: &Mapping, path: &Path) -> Option<Rc<Object>> {
        let key = key_of(mapping);
        let open = || Object::open(process, mapping, path).map(Rc::new);
        self.0.entry(key).or_insert_with(open).clone()
    }

    /// Returns the modules of a process, the program first, without the agent (tiptoe's library).
    pub fn modules(&mut self, process: Process, maps: &[Mapping]) -> Result<Vec<Module>, Error> {
        let exe = process.exe()?;
        let mut modules: Vec<Module> = Vec::new();
        for mapping in maps
            .iter()
            .filter(|mapping| mapping.perms.exec && mapping.inode != 0)
        {
            let Some(path) = mapping.file() else { continue };
            // The agent's code must not be probed, because it runs on each hit.
            if is_ours(path) {
                continue;
            }
            let text = mapping.start..mapping.end;
            let Some(object) = self.object(process, mapping, path) else {
                continue;
            };
            let Some(bias) = bias(&object.image, mapping) else {
                continue;
            };
            match modules
                .iter_mut()
                .find(|m| m.bias == bias && Rc::ptr_eq(&m.object, &object))
            {
                Some(module) => module.text.push(text),
                None => modules.push(Module {
                    name: name_of(process, path, path == exe, &object.image),
                    object,
                    path: path.to_owned(),
                    bias,
                    text: vec![text],
                    is_program: path == exe,
                }),
            }
        }
        modules.sort_by_key(|module| !module.is_program);
        Ok(modules)
    }
}

fn bias(image: &Image, mapping: &Mapping) -> Option<u64> {
    let end = mapping.offset + (mapping.end - mapping.start);
    let segments = image.layout().segments.iter();
    let segment = segments
        .filter(|segment| segment.is_executable)
        .find(|segment| {
            segment.offset < end && segment.offset + segment.file_size > mapping.offset
        })?;
    let start_of_file = mapping.start.wrapping_sub(mapping.offset);
    Some(
        start_of_file
            .wrapping_add(segment.offset)
            .wrapping_sub(segment.address),
    )
}

#[cfg(test)]
impl Object {
    pub fn has_read(&self) -> [bool; 2] {
        let DescribedFunctions {
            inlined,
            parameters,
        } = &self.described;
        [parameters.get().is_some(), inlined.get().is_some()]
    }
}
