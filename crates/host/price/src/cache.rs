//! Keeps the prices (costs of one hit) of earlier runs, because measuring takes longer than many programs run. Each
//! kind of price has files in a folder that only this user may enter ([`OwnFolder`]). A cache that cannot be used is
//! no error.
//!
//! A file is used only if it names this boot, these CPUs and this build of tiptoe, and if [`encode`] makes exactly
//! its text from the price. The price may still be outdated, because a virtual machine's host or the clock rate
//! changed, or another thread shares the core. So a file also has a [`yardstick`], the time of a call in a short
//! loop. If the present yardstick differs by more than the factor [`FAMILY`], the CPUs are in another *state*. Each
//! state has its own file, because a busy machine changes between a few states.
//!
//! The yardstick is measured before and after a price. If these yardsticks differ by more than that factor, the price
//! is measured again, up to [`TRIES`] times in all. If they still differ, the price is used but not kept, and the
//! report says so.

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

const FAMILY: f64 = 1.25;
const TRIES: usize = 3;
/// The highest number of a state (yardstick 7.5 us). The lowest is `-LAST_STATE` (0.1 ps).
const LAST_STATE: f64 = 40.0;
/// The most bytes of a file: 46 numbers of 24 characters, and the key.
const MOST_BYTES: usize = 4096;
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The prices of earlier runs.
pub struct PriceCache {
    folder: Option<PathBuf>,
    key: String,
    yardstick: OnceCell<Option<f64>>,
    measure_yardstick: fn() -> Option<f64>,
    calibrated: Cell<Option<Calibration>>,
}

impl PriceCache {
    /// Opens this user's cache.
    pub fn of_this_user() -> PriceCache {
        let [xdg, home] = ["XDG_CACHE_HOME", "HOME"].map(std::env::var_os);
        // SAFETY: the call returns a number and cannot fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        let key = key().ok();
        PriceCache {
            folder: key.as_ref().and(folder(xdg, home, is_root)),
            key: key.unwrap_or_default(),
            yardstick: OnceCell::new(),
            measure_yardstick: || yardstick().ok(),
            calibrated: Cell::new(None),
        }
    }

    /// Returns when the prices were measured; `None` before the first price.
    pub fn calibrated(&self) -> Option<Calibration> {
        self.calibrated.get()
    }

    /// Returns the cached price. Without one, measures the price.
    pub(super) fn take<P: Price>(&self, measure: impl FnMut() -> Option<P>) -> Option<P> {
        if let Some(price) = self.read() {
            self.note(Calibration::Cached);
            return Some(price);
        }
        let (price, yardstick, is_steady) = self.measure(measure)?;
        self.note(match is_steady {
            true => Calibration::Now,
            false => Calibration::Unsteady,
        });
        if let Some(yardstick) = yardstick.filter(|_| is_steady) {
            self.keep(&price, yardstick);
        }
        Some(price)
    }

    fn note(&self, calibration: Calibration) {
        self.calibrated
            .set(self.calibrated.get().max(Some(calibration)));
    }

    /// Returns the price, the yardstick after it, and whether the state was steady.
    fn measure<P>(&self, mut measure: impl FnMut() -> Option<P>) -> Option<(P, Option<f64>, bool)> {
        let mut before = (self.measure_yardstick)();
        let mut price = measure()?;
        for turn in 1.. {
            let after = (self.measure_yardstick)();
            let is_steady = match (before, after) {
                (Some(before), Some(after)) => is_in_family(before, after),
                // Without yardsticks, one measurement is enough, because the price is not kept.
                _ => true,
            };
            if is_steady || turn == TRIES {
                return Some((price, before.and(after), is_steady));
            }
            before = after;
            price = measure()?;
        }
        None
    }

    fn read<P: Price>(&self) -> Option<P> {
        let folder = OwnFolder::open(self.folder.as_ref()?).ok()?;
        let now = (*self.yardstick.get_or_init(self.measure_yardstick))?;
        [0, -1, 1].into_iter().find_map(|next| {
            let name = file_name::<P>(state(now) + next);
            let text = folder.read(&name, MOST_BYTES).ok()?;
            let (then, price) = decode(&self.key, &text)?;
            is_in_family(then, now).then_some(price)
        })
    }

    fn keep<P: Price>(&self, price: &P, yardstick: f64) {
        let Some(path) = &self.folder else { return };
        let text = encode(&self.key, yardstick, price);
        // A text that [`decode`] refuses must not replace a file.
        if decode::<P>(&self.key, text.as_bytes()).is_none() {
            return;
        }
        if let Ok(folder) = OwnFolder::make(path) {
            // After a failed write the next run measures again.
            let _ = folder.write(&file_name::<P>(state(yardstick)), text.as_bytes());
        }
    }
}

/// Returns the cache's folder. Relative paths are ignored (XDG Base Directory Specification).
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

fn key() -> io::Result<String> {
    let boot = std::fs::read_to_string(BOOT)?;
    let (cpu, this) = (cpu_model(), file_identity(Path::new("/proc/self/exe"))?);
    let (boot, version) = (boot.trim(), env!("CARGO_PKG_VERSION"));
    Ok(format!("boot {boot}\ncpu {cpu}\ntiptoe {version} {this}\n"))
}

/// Returns what identifies a build: its file, and the file's time of change (ctime), which no user can set. Hashing the
/// file would take longer than the measurements.
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

/// Returns the number of a state, the yardstick's logarithm. Two yardsticks within [`FAMILY`] have the same or
/// neighbouring numbers.
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
