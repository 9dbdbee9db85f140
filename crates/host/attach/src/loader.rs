//! Renames the agent (tiptoe's library) in the loader's list of a program's libraries.
//!
//! A command's loader opened the agent as `/proc/self/fd/N`, a descriptor that is soon closed. A debugger that opened
//! this path would open one of its own descriptors, and might hang. So [`rename`] replaces the path in the list by
//! the name that the agent has in `/proc/PID/maps`. The agent's image contains this name. glibc and musl have the
//! same list (`<link.h>`).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

use tiptoe_sys::host::procfs::Process;

use crate::inject::auxv_value;

const ENTRIES: usize = 1 << 12;
/// The most program headers and dynamic entries to read. Their number must be bounded, because a hostile program
/// chose it.
const HEADERS: u64 = 1 << 10;

/// Renames the object whose load base is `base`. `name` is the address of a string in the program. The program must
/// be stopped. Returns `None`, and changes nothing, if no object has this base.
pub fn rename(process: Process, base: u64, name: u64) -> Option<()> {
    let memory = Memory::open(process).ok()?;
    let [mut entry] = memory.words(debug_record(process, &memory)?.wrapping_add(8))?;
    for _ in 0..ENTRIES {
        let [address, _, _, next] = memory.words(entry)?;
        if address == base {
            let at = entry.wrapping_add(8);
            return memory.0.write_all_at(&name.to_le_bytes(), at).ok();
        }
        entry = Some(next).filter(|next| *next != 0)?;
    }
    None
}

/// Returns the address of the loader's record for debuggers, and the function that the loader calls at each
/// change of its list.
pub fn record(process: Process) -> Option<(u64, u64)> {
    let memory = Memory::open(process).ok()?;
    let record = debug_record(process, &memory)?;
    let [_, _, changed] = memory.words(record)?;
    Some((record, changed)).filter(|_| changed != 0)
}

fn debug_record(process: Process, memory: &Memory) -> Option<u64> {
    const DT_DEBUG: u64 = 21;
    let dynamic = dynamic_section(process, memory)?;
    for index in 0..HEADERS {
        match memory.words(dynamic.wrapping_add(index * 16))? {
            [0, _] => return None,
            [DT_DEBUG, record] => return Some(record).filter(|record| *record != 0),
            _ => {}
        }
    }
    None
}

fn dynamic_section(process: Process, memory: &Memory) -> Option<u64> {
    const PT_DYNAMIC: u32 = 2;
    const PT_PHDR: u32 = 6;
    const SIZE: u64 = 56;
    let table = auxiliary(process, libc::AT_PHDR)?;
    let count = auxiliary(process, libc::AT_PHNUM)?.min(HEADERS);
    let (mut own, mut dynamic) = (0, None);
    for index in 0..count {
        let [kind, _, address] = memory.words(table.wrapping_add(index * SIZE))?;
        match kind as u32 {
            PT_PHDR => own = table.wrapping_sub(address),
            PT_DYNAMIC => dynamic = Some(address),
            _ => {}
        }
    }
    Some(own.wrapping_add(dynamic?))
}

fn auxiliary(process: Process, key: u64) -> Option<u64> {
    let auxv = std::fs::read(format!("/proc/{}/auxv", process.pid())).ok()?;
    auxv_value(&auxv, key)
}

struct Memory(File);

impl Memory {
    fn open(process: Process) -> io::Result<Memory> {
        let path = format!("/proc/{}/mem", process.pid());
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Memory(file))
    }

    fn words<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        let mut words = [[0; 8]; N];
        let bytes = words.as_flattened_mut();
        self.0.read_exact_at(bytes, address).ok()?;
        Some(words.map(u64::from_le_bytes))
    }
}
