//! Reads a running program's code, to see its probes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use object::{Object as _, ObjectSymbol as _};

use crate::process::wait_until;

const LIMIT: Duration = Duration::from_secs(20);

/// The length in bytes of an entry's [`Site`]. The probe may be after an `endbr64`, a no-operation and four
/// instructions.
const WINDOW: usize = 64;

/// The possible location of a probe.
#[derive(Debug)]
pub struct Site {
    memory: File,
    address: u64,
    original: Vec<u8>,
}

impl Site {
    /// Returns the entry of `symbol`, which must not be probed yet, because its original bytes are saved.
    pub fn new(pid: u32, program: &Path, symbol: &str) -> Site {
        Site::of(pid, program, symbol, 0, WINDOW)
    }

    /// Returns one byte of a function.
    pub fn inside(pid: u32, program: &Path, symbol: &str, offset: u64) -> Site {
        Site::of(pid, program, symbol, offset, 1)
    }

    fn of(pid: u32, program: &Path, symbol: &str, offset: u64, length: usize) -> Site {
        let memory = File::open(format!("/proc/{pid}/mem")).expect("our own child's memory");
        let address = base(pid, program) + symbol_value(program, symbol) + offset;
        let mut site = Site {
            memory,
            address,
            original: vec![0; length],
        };
        site.original = site.now();
        site
    }

    /// Returns the site's present bytes.
    pub fn now(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.original.len()];
        self.memory
            .read_exact_at(&mut bytes, self.address)
            .expect("the program lives");
        bytes
    }

    /// Returns whether a probe is at the site.
    pub fn is_probed(&self) -> bool {
        self.now() != self.original
    }

    /// Waits until a probe is at the site. Bytes that change back within 10 ms belong to the loading of tiptoe's
    /// library.
    pub fn wait_probed(&self) {
        wait_until("the probe", LIMIT, || {
            let seen = self.now();
            sleep(Duration::from_millis(10));
            seen != self.original && seen == self.now()
        });
    }

    /// Waits for exactly these bytes.
    pub fn wait_for(&self, bytes: &[u8]) {
        wait_until("the bytes", LIMIT, || self.now() == bytes);
    }

    /// Waits until the original bytes are restored.
    pub fn wait_original(&self) {
        wait_until("the original bytes", LIMIT, || !self.is_probed());
    }
}

/// Returns how many bytes of code differ from the files.
pub fn patched_bytes(pid: u32) -> usize {
    patched_bytes_in(pid, "")
}

/// Returns how many bytes of code differ in the file whose path ends with `name`.
pub fn patched_bytes_in(pid: u32, name: &str) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("the program lives");
    let memory = File::open(format!("/proc/{pid}/mem")).expect("our own child's memory");
    let number = |text: &str| u64::from_str_radix(text, 16).expect("a number in hexadecimal");
    let differing = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [range, protection, offset, _, _, path] = words[..] else {
            return None;
        };
        let wanted = protection.contains('x') && path.ends_with(name);
        let file = File::open(path).ok().filter(|_| wanted)?;
        let (start, end) = range.split_once('-')?;
        let mut bytes = [(); 2].map(|()| vec![0; (number(end) - number(start)) as usize]);
        memory.read_exact_at(&mut bytes[0], number(start)).ok()?;
        // The last page is zero after the end of the file.
        let _ = file.read_at(&mut bytes[1], number(offset)).ok()?;
        Some(
            bytes[0]
                .iter()
                .zip(&bytes[1])
                .filter(|(a, b)| a != b)
                .count(),
        )
    };
    maps.lines().filter_map(differing).sum()
}

/// Returns the file offset of `symbol`.
pub fn file_offset(pid: u32, program: &Path, symbol: &str) -> u64 {
    let address = base(pid, program) + symbol_value(program, symbol);
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("the program lives");
    let number = |text: &str| u64::from_str_radix(text, 16).expect("a number in hexadecimal");
    let offset = |line: &str| {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let offset = number(words.nth(1)?);
        (number(start)..number(end))
            .contains(&address)
            .then(|| address - number(start) + offset)
    };
    maps.lines().find_map(offset).expect("it is mapped")
}

/// Returns a program's load address, 0 unless it is position-independent.
fn base(pid: u32, program: &Path) -> u64 {
    let program = program.canonicalize().expect("the program exists");
    let name = program.file_name().expect("a file").to_string_lossy();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("the program lives");
    // Only file names are compared, because the path differs in another root.
    let first = maps
        .lines()
        .find(|line| line.ends_with(&format!("/{name}")))
        .expect("it is mapped");
    let start =
        u64::from_str_radix(first.split('-').next().unwrap_or_default(), 16).expect("an address");
    if start < 0x1000_0000 { 0 } else { start }
}

/// Returns a symbol's value.
pub fn symbol_value(program: &Path, symbol: &str) -> u64 {
    let all = symbols(program);
    let found = all.into_iter().find(|(name, _)| name == symbol);
    let value = found.map(|(_, value)| value);
    value.unwrap_or_else(|| panic!("no symbol `{symbol}` in {}", program.display()))
}

/// Returns the symbol table, then the dynamic one, without imports.
pub fn symbols(program: &Path) -> Vec<(String, u64)> {
    let bytes = std::fs::read(program).expect("a program");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let defined = file.symbols().chain(file.dynamic_symbols());
    defined
        .filter(|symbol| !symbol.is_undefined())
        .filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol.address())))
        .collect()
}
