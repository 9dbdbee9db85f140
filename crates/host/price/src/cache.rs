//! Keeps prices that an earlier run measured.
//!
//! Measuring takes longer than many programs run. So each kind of price is kept in a file of a
//! folder that only this user may enter ([`OwnFolder`]), for runs of the same tiptoe on the same
//! CPUs until the next boot.
//!
//! A file is ignored unless it is exactly what would be written for this key, with numbers that a
//! measurement may give. A price may also be outdated, because the host of a virtual machine or
//! clock rates change, or other threads share the core. So each file has the [`yardstick`] beside
//! its price: a short loop's time for each call. If the loop's time now differs by more than
//! [`FAMILY`], the price is measured again. A busy machine changes between a few such states from
//! run to run, and each measurement takes 0.1 s of a CPU, so there is one file for each state. A
//! cache that cannot be used is no error.
//!
//! The state may also change while a price is measured. So the yardstick is measured before and after; if its two times
//! differ by more than [`FAMILY`], the price is measured once more, at most [`TRIES`] times. A price of a state that
//! did not last is not kept.

use std::arch::x86_64::__cpuid;
use std::cell::{Cell, OnceCell};
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tiptoe_session::Calibration;
use tiptoe_sys::host::own_folder::OwnFolder;

use super::in_process::yardstick;
use super::price::{Price, decode, encode};

/// The largest ratio between two yardsticks of one state of the CPUs.
const FAMILY: f64 = 1.25;
/// The most measurements of a price whose state of the CPUs did not last.
const TRIES: usize = 3;
/// States are numbered from minus this to this, by the yardstick's logarithm: from 0.1 ps to 7.5
/// us.
const LAST_STATE: f64 = 40.0;
/// The longest file: 46 numbers of 24 characters, and the key.
const MOST_BYTES: usize = 4096;
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The prices that earlier runs measured, and whether this run measured any.
pub struct PriceCache {
    folder: Option<PathBuf>,
    key: String,
    yardstick: OnceCell<Option<f64>>,
    measure_yardstick: fn() -> Option<f64>,
    calibrated: Cell<Option<Calibration>>,
}

fn measured_yardstick() -> Option<f64> {
    yardstick().ok()
}

impl PriceCache {
    /// Opens this user's cache folder.
    pub fn of_this_user() -> PriceCache {
        let [xdg, home] = ["XDG_CACHE_HOME", "HOME"].map(std::env::var_os);
        // SAFETY: the call returns a number and cannot fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        let key = key().ok();
        PriceCache {
            folder: key.as_ref().and(folder(xdg, home, is_root)),
            key: key.unwrap_or_default(),
            yardstick: OnceCell::new(),
            measure_yardstick: measured_yardstick,
            calibrated: Cell::new(None),
        }
    }

    #[cfg(test)]
    pub(super) fn none() -> PriceCache {
        PriceCache {
            folder: None,
            key: String::new(),
            yardstick: OnceCell::new(),
            measure_yardstick: measured_yardstick,
            calibrated: Cell::new(None),
        }
    }

    /// Returns whether any price was measured, or all were cached; `None` before the first.
    pub fn calibrated(&self) -> Option<Calibration> {
        self.calibrated.get()
    }

    /// Returns the kept price, or measures one, which is kept if the CPUs' state lasted. `None` if
    /// it cannot be measured.
    pub(super) fn take<P: Price>(&self, measure: impl FnMut() -> Option<P>) -> Option<P> {
        if let Some(price) = self.read() {
            self.calibrated
                .set(self.calibrated.get().or(Some(Calibration::Cached)));
            return Some(price);
        }
        let (price, is_steady) = self.measure(measure)?;
        self.calibrated.set(Some(Calibration::Now));
        if is_steady {
            self.keep(&price);
        }
        Some(price)
    }

    /// Measures a price until the CPUs' state lasts. Returns it, and whether the state lasted.
    fn measure<P>(&self, mut measure: impl FnMut() -> Option<P>) -> Option<(P, bool)> {
        let mut before = (self.measure_yardstick)();
        let mut price = measure()?;
        for turn in 1.. {
            let after = (self.measure_yardstick)();
            let is_steady = match (before, after) {
                (Some(before), Some(after)) => is_in_family(before, after),
                // Without a yardstick the state is unknown, and `keep` keeps nothing.
                _ => true,
            };
            if is_steady || turn == TRIES {
                return Some((price, is_steady));
            }
            before = after;
            price = measure()?;
        }
        None
    }

    /// Returns the kept price of a kind, if it still holds.
    fn read<P: Price>(&self) -> Option<P> {
        let folder = OwnFolder::open(self.folder.as_ref()?).ok()?;
        let now = self.yardstick()?;
        // The kept yardstick may be just across the border of a neighbouring state.
        [0, -1, 1].into_iter().find_map(|next| {
            let name = file_name::<P>(state(now) + next);
            let text = folder.read(&name, MOST_BYTES).ok()?;
            let (then, price) = decode(&self.key, &text)?;
            is_in_family(then, now).then_some(price)
        })
    }

    fn keep<P: Price>(&self, price: &P) {
        let Some(path) = &self.folder else { return };
        let Some(yardstick) = self.yardstick() else {
            return;
        };
        let text = encode(&self.key, yardstick, price);
        // No later run would accept it.
        if decode::<P>(&self.key, text.as_bytes()).is_none() {
            return;
        }
        if let Ok(folder) = OwnFolder::make(path) {
            // No error: the next run measures again.
            let _ = folder.write(&file_name::<P>(state(yardstick)), text.as_bytes());
        }
    }

    fn yardstick(&self) -> Option<f64> {
        *self.yardstick.get_or_init(self.measure_yardstick)
    }
}

/// Returns the folder of prices; values that are not absolute are ignored (XDG Base Directory
/// Specification).
fn folder(xdg: Option<OsString>, home: Option<OsString>, is_root: bool) -> Option<PathBuf> {
    let absolute =
        |value: Option<OsString>| value.map(PathBuf::from).filter(|path| path.is_absolute());
    let base = match (absolute(xdg), is_root) {
        (Some(xdg), _) => xdg,
        (None, true) => PathBuf::from("/var/cache"),
        (None, false) => absolute(home)?.join(".cache"),
    };
    Some(base.join("tiptoe"))
}

/// Returns what a kept price is valid for: the boot, the CPUs' model and this tiptoe, a line each.
fn key() -> io::Result<String> {
    let boot = std::fs::read_to_string(BOOT)?;
    let (cpu, this) = (cpu_model(), file_identity(Path::new("/proc/self/exe"))?);
    let (boot, version) = (boot.trim(), env!("CARGO_PKG_VERSION"));
    Ok(format!("boot {boot}\ncpu {cpu}\ntiptoe {version} {this}\n"))
}

/// Identifies a file. Another build is another file, or has another time of change, which no user
/// can choose. A hash would take longer than the measurements that it saves.
fn file_identity(path: &Path) -> io::Result<String> {
    let file = path.metadata()?;
    let (device, inode, len) = (file.dev(), file.ino(), file.len());
    let (s, ns) = (file.ctime(), file.ctime_nsec());
    Ok(format!("{device:x}:{inode:x} {len} {s}.{ns:09}"))
}

/// Returns the processor's brand, family, model and stepping (CPUID leaves 1 and 0x8000_0002 to 4).
fn cpu_model() -> String {
    let mut brand = Vec::new();
    if __cpuid(0x8000_0000).eax >= 0x8000_0004 {
        for leaf in 0x8000_0002..=0x8000_0004 {
            let found = __cpuid(leaf);
            for register in [found.eax, found.ebx, found.ecx, found.edx] {
                brand.extend(register.to_le_bytes());
            }
        }
    }
    let is_plain = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    let brand: String = brand.into_iter().filter(is_plain).map(char::from).collect();
    format!("{:08x} {}", __cpuid(1).eax, brand.trim())
}

fn is_in_family(then: f64, now: f64) -> bool {
    now <= then * FAMILY && then <= now * FAMILY
}

/// Returns the number of the CPUs' state. Times in a family are in this state or its neighbours.
fn state(yardstick: f64) -> i32 {
    let state = (yardstick.ln() / FAMILY.ln()).round();
    state.clamp(-LAST_STATE, LAST_STATE) as i32
}

fn file_name<P: Price>(state: i32) -> String {
    format!("{}.{state}", P::KIND)
}

#[cfg(test)]
#[path = "cache/tests.rs"]
mod tests;
