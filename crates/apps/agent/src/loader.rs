//! The loader's list of what it has loaded, as `<link.h>` has it for debuggers; glibc's and
//! musl's. Read on a loading thread, under the loader's lock.

use core::iter;

use tiptoe_sys::raw::{call, nr};

/// Entries that are looked at, at most: a list that is torn must not hold a thread.
const MOST: usize = 1 << 14;

/// Bytes of a path that are looked at, at most.
const LONGEST: usize = 4096;

/// `struct r_debug`, and in its second version `struct r_debug_extended`.
#[repr(C)]
struct Debug {
    version: i32,
    first: *const LinkMap,
    changed: u64,
    state: i32,
    loader: u64,
    /// The record of the next namespace, from version 2 on.
    next: *const Debug,
}

/// `struct link_map`, as far as it is public.
#[repr(C)]
struct LinkMap {
    base: u64,
    name: *const i8,
    dynamic: u64,
    next: *const LinkMap,
}

/// The loader's record.
#[derive(Clone, Copy)]
pub struct Record(*const Debug);

/// An object that is loaded.
#[derive(Clone, Copy)]
pub struct Entry(*const LinkMap);

impl Record {
    /// The record at an address that tiptoe found; `None` for 0.
    pub fn at(address: u64) -> Option<Record> {
        (address != 0).then_some(Record(address as *const Debug))
    }

    /// This namespace's record and those of the others.
    fn all(self) -> impl Iterator<Item = Record> {
        iter::successors(Some(self), |record| {
            // SAFETY: the loader keeps its records for the life of the process, and the
            // word behind the first version's is there from the second on.
            let next = unsafe { ((*record.0).version >= 2).then(|| (*record.0).next) }?;
            Record::at(next as u64)
        })
    }

    /// Whether nothing is being loaded or closed.
    pub fn is_consistent(self) -> bool {
        const CONSISTENT: i32 = 0;
        self.all().all(|record| {
            // SAFETY: as above; it changes under the loader's lock, which this thread has.
            unsafe { (&raw const (*record.0).state).read_volatile() == CONSISTENT }
        })
    }

    /// All objects that are loaded.
    pub fn entries(self) -> impl Iterator<Item = Entry> {
        let of = |record: Record| {
            // SAFETY: as above.
            let first = Entry::at(unsafe { (*record.0).first });
            // SAFETY: an entry stays while the loader's lock is held.
            iter::successors(first, |entry| Entry::at(unsafe { (*entry.0).next }))
        };
        self.all().flat_map(of).take(MOST)
    }
}

impl Entry {
    fn at(address: *const LinkMap) -> Option<Entry> {
        (!address.is_null()).then_some(Entry(address))
    }

    /// Where the entry itself is: no two objects that are loaded have one.
    pub fn address(&self) -> u64 {
        self.0 as u64
    }

    /// Whether it is libgcc's unwinder, by its name.
    pub fn is_unwinder(&self) -> bool {
        const NAME: &[u8] = b"/libgcc_s.so";
        // SAFETY: as in `Record::entries`.
        let name = unsafe { (*self.0).name };
        // SAFETY: the loader's names end with a zero, which is the last that is read.
        let bytes = (0..LONGEST).map(|at| unsafe { name.add(at).read() } as u8);
        let mut same = 0;
        for byte in bytes.take_while(|byte| *byte != 0) {
            same = match NAME.get(same) {
                Some(next) if *next == byte => same + 1,
                _ => usize::from(byte == b'/'),
            };
            if same == NAME.len() {
                return true;
            }
        }
        false
    }

    /// What the loader adds to the object's addresses.
    pub fn base(&self) -> u64 {
        // SAFETY: as in `Record::entries`.
        unsafe { (*self.0).base }
    }
}

/// What tells one build of a file from another: device, inode, size and time of change.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct File(pub [u64; File::WORDS]);

impl File {
    /// Words of it.
    pub const WORDS: usize = 4;

    /// The file that an entry's name leads to, all 0 where none does (the program itself).
    pub fn of(entry: &Entry) -> File {
        const AT_FDCWD: usize = -100isize as usize;
        // struct stat: device, inode, then size at 48, seconds and nanoseconds at 88.
        let mut stat = [0u64; 18];
        // SAFETY: as in `Record::entries`; the loader's names end with a zero.
        let name = unsafe { (*entry.0).name };
        let into = stat.as_mut_ptr() as usize;
        // SAFETY: the kernel reads the name and writes 144 bytes, which `stat` has.
        let asked = unsafe { call(nr::NEWFSTATAT, [AT_FDCWD, name as usize, into, 0, 0, 0]) };
        let [
            device,
            inode,
            _,
            _,
            _,
            _,
            size,
            _,
            _,
            _,
            _,
            seconds,
            part,
            ..,
        ] = stat;
        let changed = seconds.wrapping_mul(1_000_000_000).wrapping_add(part);
        asked.map_or(File::default(), |_| File([device, inode, size, changed]))
    }
}
