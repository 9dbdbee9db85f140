//! The loader's list of loaded objects (`<link.h>`), in glibc and musl. A thread that reads the list must hold the
//! loader's lock.

use core::iter;

use tiptoe_sys::raw::{call, nr};

/// The most entries to read, because the list may be torn or cyclic.
const MOST: usize = 1 << 14;

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

#[repr(C)]
struct LinkMap {
    base: u64,
    name: *const i8,
    dynamic: u64,
    next: *const LinkMap,
}

#[derive(Clone, Copy)]
pub struct Record(*const Debug);

#[derive(Clone, Copy)]
pub struct Entry(*const LinkMap);

const CONSISTENT: i32 = 0;

impl Record {
    pub fn at(address: u64) -> Option<Record> {
        (address != 0).then_some(Record(address as *const Debug))
    }

    fn all(self) -> impl Iterator<Item = Record> {
        iter::successors(Some(self), |record| {
            // SAFETY: the loader never frees its records. From version 2 on, a record has `next`.
            let next = unsafe { ((*record.0).version >= 2).then(|| (*record.0).next) }?;
            Record::at(next as u64)
        })
    }

    pub fn is_consistent(self) -> bool {
        self.all().all(|record| {
            // SAFETY: as above. The state changes under the loader's lock, which this thread holds.
            unsafe { (&raw const (*record.0).state).read_volatile() == CONSISTENT }
        })
    }

    /// Returns whether the loader is changing the first namespace. Any thread may call this.
    pub fn is_changing(self) -> bool {
        // SAFETY: as above; the first record is the loader's own, and stays.
        unsafe { (&raw const (*self.0).state).read_volatile() != CONSISTENT }
    }

    pub fn entries(self) -> impl Iterator<Item = Entry> {
        let of = |record: Record| {
            // SAFETY: as above.
            let first = Entry::at(unsafe { (*record.0).first });
            // SAFETY: an entry stays as long as the loader's lock is held.
            iter::successors(first, |entry| Entry::at(unsafe { (*entry.0).next }))
        };
        self.all().flat_map(of).take(MOST)
    }
}

impl Entry {
    fn at(address: *const LinkMap) -> Option<Entry> {
        (!address.is_null()).then_some(Entry(address))
    }

    /// Returns the address of the entry, which is unique among loaded objects.
    pub fn address(&self) -> u64 {
        self.0 as u64
    }

    pub fn is_unwinder(&self) -> bool {
        const NAME: &[u8] = b"/libgcc_s.so";
        // SAFETY: as in `Record::entries`.
        let name = unsafe { (*self.0).name };
        // SAFETY: names in the loader's list end with a zero, at which reading stops.
        let len = (0..LONGEST).take_while(|at| unsafe { name.add(*at).read() } != 0);
        // SAFETY: as above.
        let name = unsafe { core::slice::from_raw_parts(name.cast::<u8>(), len.count()) };
        name.windows(NAME.len()).any(|part| part == NAME)
    }

    pub fn base(&self) -> u64 {
        // SAFETY: as in `Record::entries`.
        unsafe { (*self.0).base }
    }
}

/// Identifies one build of a file by device, inode, size and time of change.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct FileIdentity(pub [u64; FileIdentity::WORDS]);

impl FileIdentity {
    pub const WORDS: usize = 4;

    /// Returns the identity of the file at an entry's path, or zeroes if no such file exists, as for the program
    /// itself.
    pub fn of(entry: &Entry) -> FileIdentity {
        const AT_FDCWD: usize = -100isize as usize;
        // struct stat: device, inode, then the size at 48, and seconds and nanoseconds at 88.
        let mut stat = [0u64; 18];
        // SAFETY: as in `Record::entries`; the loader's names end with a zero.
        let name = unsafe { (*entry.0).name };
        let into = stat.as_mut_ptr() as usize;
        // SAFETY: the kernel reads the name and writes 144 bytes, the size of `stat`.
        let result = unsafe { call(nr::NEWFSTATAT, [AT_FDCWD, name as usize, into, 0, 0, 0]) };
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
        result.map_or(FileIdentity::default(), |_| {
            FileIdentity([device, inode, size, changed])
        })
    }
}
