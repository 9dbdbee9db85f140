use super::*;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use proptest::collection::vec;
use proptest::prelude::{Strategy, proptest};
use tiptoe_event::Cost;

use crate::in_process::InProcess;
use crate::lock_waits::Calls;
use crate::price::FORM;
use crate::trap::Trap;
use crate::uprobe::Steps;

const KEY: &str = "boot 1\ncpu 2\ntiptoe 3\n";

type Change = fn(&Path);

thread_local!(static STATE: Cell<f64> = const { Cell::new(0.0) });

impl PriceCache {
    pub(crate) fn none() -> PriceCache {
        PriceCache {
            folder: None,
            key: String::new(),
            yardstick: OnceCell::new(),
            measure_yardstick: || yardstick().ok(),
            calibrated: Cell::new(None),
        }
    }
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path =
            std::env::temp_dir().join(format!("tiptoe-prices-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a folder");
        Scratch(path)
    }

    fn run(&self, key: &str, yardstick: f64) -> PriceCache {
        STATE.set(yardstick);
        PriceCache {
            folder: Some(self.0.join("tiptoe")),
            key: key.to_owned(),
            yardstick: OnceCell::from(Some(yardstick)),
            measure_yardstick: || Some(STATE.get()),
            calibrated: Cell::new(None),
        }
    }

    fn file(&self) -> PathBuf {
        self.0.join("tiptoe").join(file_name::<Trap>(state(2.0)))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn trap(run: &PriceCache, measured_ns: f64) -> (f64, bool) {
    let mut count = 0;
    let price = run.take(|| {
        count += 1;
        Some(Trap(measured_ns))
    });
    let is_measured = count == 1;
    let expected = [Calibration::Cached, Calibration::Now][usize::from(is_measured)];
    assert_eq!(run.calibrated(), Some(expected));
    (price.expect("it can be measured").0, is_measured)
}

#[test]
fn a_second_run_does_not_measure() {
    let scratch = Scratch::new("second");
    assert_eq!(trap(&scratch.run(KEY, 2.0), 100.0), (100.0, true));
    assert_eq!(trap(&scratch.run(KEY, 2.0), 200.0), (100.0, false));
    let run = scratch.run(KEY, 2.0);
    assert_eq!(trap(&run, 200.0), (100.0, false));
    let steps = || Some(Steps([1.0, 2.0, 3.0]));
    assert!(run.take(steps).is_some());
    assert_eq!(run.calibrated(), Some(Calibration::Now));
    let run = scratch.run(KEY, 2.0);
    let kept: Option<Steps> = run.take(|| None);
    assert_eq!(kept.map(|steps| steps.0), Some([1.0, 2.0, 3.0]));
    assert_eq!(run.calibrated(), Some(Calibration::Cached));
}

#[test]
fn a_price_was_kept_although_the_state_changed() {
    thread_local!(static TIMES: Cell<u32> = const { Cell::new(0) });
    fn disturbed() -> Option<f64> {
        let times = TIMES.replace(TIMES.get() + 1);
        Some([2.0, 3.0, 2.0, 2.0][times.min(3) as usize])
    }
    let scratch = Scratch::new("disturbed");
    let run = PriceCache {
        measure_yardstick: disturbed,
        ..scratch.run(KEY, 2.0)
    };
    let mut prices = [9_000.0, 5_000.0, 100.0].into_iter();
    let price = run.take(|| prices.next().map(Trap));
    assert_eq!(price.map(|trap| trap.0), Some(100.0));
    assert_eq!(trap(&scratch.run(KEY, 2.0), 7.0), (100.0, false));
    fn never_the_same() -> Option<f64> {
        Some(f64::from(1 << TIMES.replace(TIMES.get() + 1)))
    }
    let scratch = Scratch::new("never");
    let run = PriceCache {
        measure_yardstick: never_the_same,
        ..scratch.run(KEY, 2.0)
    };
    let mut count = 0;
    let price = run.take(|| {
        count += 1;
        Some(Trap(9_000.0))
    });
    assert_eq!((price.map(|trap| trap.0), count), (Some(9_000.0), TRIES));
    assert_eq!(run.calibrated(), Some(Calibration::Unsteady));
    let steady = run.take(|| Some(Trap(1.0)));
    assert!(steady.is_some());
    assert_eq!(run.calibrated(), Some(Calibration::Unsteady));
    assert_eq!(trap(&scratch.run(KEY, 2.0), 7.0), (7.0, true));
}

#[test]
fn a_price_was_kept_for_the_state_before_its_measurement() {
    let scratch = Scratch::new("before");
    let run = scratch.run(KEY, 2.0);
    STATE.set(9.0);
    assert_eq!(trap(&run, 100.0), (100.0, true));
    assert_eq!(trap(&scratch.run(KEY, 9.0), 7.0), (100.0, false));
    assert_eq!(trap(&scratch.run(KEY, 2.0), 200.0), (200.0, true));
}

#[test]
fn a_price_of_another_state_or_key_is_measured_again() {
    let scratch = Scratch::new("others");
    assert_eq!(trap(&scratch.run(KEY, 2.0), 100.0), (100.0, true));
    let near = [2.0 * FAMILY, 2.0 / FAMILY];
    for now in near {
        assert_eq!(trap(&scratch.run(KEY, now), 200.0), (100.0, false), "{now}");
    }
    let mut kept = 100.0;
    let others = [
        (KEY, 2.1 * FAMILY),
        (KEY, 1.9 / FAMILY),
        ("boot 4\ncpu 2\ntiptoe 3\n", 1.9),
        ("boot 4\ncpu 5\ntiptoe 3\n", 1.9),
        ("boot 4\ncpu 5\ntiptoe 6\n", 1.9),
    ];
    for (key, now) in others {
        let new = kept + 1.0;
        assert_eq!(
            trap(&scratch.run(key, now), new),
            (new, true),
            "{key} {now}"
        );
        assert_eq!(
            trap(&scratch.run(key, now), 7.0),
            (new, false),
            "{key} {now}"
        );
        kept = new;
    }
}

#[test]
fn each_state_of_the_cpus_has_a_price() {
    let scratch = Scratch::new("states");
    let states = [(2.0, 100.0), (3.0, 200.0), (9.0, 300.0)];
    for (now, ns) in states {
        assert_eq!(trap(&scratch.run(KEY, now), ns), (ns, true));
    }
    for (now, ns) in states {
        assert_eq!(trap(&scratch.run(KEY, now), 7.0), (ns, false));
        assert_eq!(trap(&scratch.run(KEY, now * 1.2), 7.0), (ns, false));
    }
    for odd in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300, 1e-300] {
        assert!((-40..=40).contains(&state(odd)), "{odd}");
    }
}

#[test]
fn a_cache_that_cannot_be_used_is_no_error() {
    let scratch = Scratch::new("none");
    let runs = || {
        let nowhere = PriceCache {
            measure_yardstick: || None,
            ..PriceCache::none()
        };
        let in_file = PriceCache {
            folder: Some(PathBuf::from("/proc/self/comm/tiptoe")),
            ..scratch.run(KEY, 2.0)
        };
        let without_yardstick = PriceCache {
            yardstick: OnceCell::from(None),
            measure_yardstick: || None,
            ..scratch.run(KEY, 2.0)
        };
        [nowhere, in_file, without_yardstick]
    };
    for ns in [100.0, 200.0] {
        for run in runs() {
            assert_eq!(trap(&run, ns), (ns, true));
        }
    }
    for ns in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300] {
        let run = scratch.run(KEY, 2.0);
        assert!(run.take(|| Some(Trap(ns))).is_some());
        assert!(!scratch.file().exists(), "{ns}");
    }
    let run = scratch.run(KEY, 2.0);
    assert!(run.take(|| None::<Trap>).is_none());
    assert_eq!(run.calibrated(), None);
}

#[test]
fn files_that_other_users_may_write_are_not_read() {
    let odd: [(&str, Change); 6] = [
        ("for all to write", |path| {
            fs::set_permissions(path, Permissions::from_mode(0o666)).expect("ours");
        }),
        ("link", |path| {
            fs::rename(path, path.with_extension("1")).expect("ours");
            symlink(path.with_extension("1"), path).expect("a link");
        }),
        ("pipe", |path| {
            fs::remove_file(path).expect("ours");
            nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        }),
        ("too long", |path| {
            let text = fs::read_to_string(path).expect("text");
            fs::write(path, text + &" ".repeat(MOST_BYTES)).expect("ours");
        }),
        ("folder for all", |path| {
            let folder = path.parent().expect("a folder");
            fs::set_permissions(folder, Permissions::from_mode(0o777)).expect("ours");
        }),
        ("another user's", |path| {
            chown(path, Some(65_534), None).expect("root gives it away");
        }),
    ];
    for (what, change) in odd {
        // SAFETY: the call returns a number and cannot fail.
        if what == "another user's" && unsafe { libc::geteuid() } != 0 {
            crate::skipped::skipped("files of another user", "needs root");
            continue;
        }
        let scratch = Scratch::new("odd");
        assert_eq!(trap(&scratch.run(KEY, 2.0), 100.0), (100.0, true));
        assert_eq!(trap(&scratch.run(KEY, 2.0), 200.0), (100.0, false));
        change(&scratch.file());
        assert_eq!(trap(&scratch.run(KEY, 2.0), 200.0), (200.0, true), "{what}");
        let is_kept = what != "folder for all";
        let again = trap(&scratch.run(KEY, 2.0), 300.0);
        assert_eq!(
            again,
            if is_kept {
                (200.0, false)
            } else {
                (300.0, true)
            },
            "{what}"
        );
    }
}

#[test]
fn hostile_text_is_no_price() {
    let good = encode(KEY, 2.0, &Trap(100.0));
    assert_eq!(good, format!("{FORM}\n{KEY}trap\n2.0\n100.0\nend\n"));
    let read = |text: &[u8]| decode::<Trap>(KEY, text).map(|(then, Trap(ns))| (then, ns));
    assert_eq!(read(good.as_bytes()), Some((2.0, 100.0)));
    for len in 0..good.len() {
        assert_eq!(read(&good.as_bytes()[..len]), None, "{len} bytes");
    }
    for number in [
        "NaN",
        "nan",
        "inf",
        "-inf",
        "infinity",
        "-100.0",
        "0",
        "-0.0",
        "1e300",
        "1e-300",
        "1e8",
        "",
        "x",
        "0x10",
        "100.0 ",
        " 100.0",
        "+100.0",
        "100",
        "1e2",
        "100.0\r",
        "100.0\n100.0",
        "1\u{661}",
        "100.00",
    ] {
        let text = good.replace("100.0", number);
        assert_eq!(read(text.as_bytes()), None, "{number:?} as a price");
        let text = good.replace("\n2.0\n", &format!("\n{number}\n"));
        assert_eq!(read(text.as_bytes()), None, "{number:?} as the yardstick");
    }
    for other in [
        good.replace("prices 1", "prices 2"),
        good.replace("boot 1", "boot 2"),
        good.replace("\ntrap\n", "\nuprobes\n"),
        good.replace("\ntrap\n", "\n"),
        good.clone() + "\n",
        good.clone() + &good,
        good.replace("end\n", "end"),
        good.replace('\n', "\r\n"),
        format!("\u{feff}{good}"),
        "\0".repeat(100),
        "9".repeat(MOST_BYTES),
    ] {
        assert_eq!(read(other.as_bytes()), None, "{other:?}");
    }
    assert_eq!(read(&[0xff; 100]), None);
    let not_utf8 = [&good.as_bytes()[..20], &[0xff][..], &good.as_bytes()[20..]].concat();
    assert_eq!(read(&not_utf8), None);
}

#[test]
fn numbers_out_of_order_are_no_price() {
    let calls = |numbers: [f64; 3]| Calls::of_numbers(&[numbers; 3].concat()).is_some();
    assert!(calls([1.0, 2.0, 3.0]) && calls([2.0; 3]));
    for numbers in [
        [2.0, 1.0, 3.0],
        [1.0, 3.0, 2.0],
        [3.0, 2.0, 1.0],
        [-1.0, 2.0, 3.0],
        [0.0, 1.0, 2.0],
    ] {
        assert!(!calls(numbers), "{numbers:?}");
    }
    assert!(Calls::of_numbers(&[1.0; 8]).is_none() && Calls::of_numbers(&[1.0; 10]).is_none());
    let mut counts = [[2.0, 1.0, 1.0]; 15].concat();
    assert!(InProcess::of_numbers(&counts).is_some());
    assert!(InProcess::of_numbers(&counts[..42]).is_none());
    for (index, number) in [
        (0, 0.0),
        (0, -1.0),
        (1, -2e3),
        (1, 1e6),
        (0, 1e3),
        (44, 1e6),
    ] {
        let before = std::mem::replace(&mut counts[index], number);
        assert!(
            InProcess::of_numbers(&counts).is_none(),
            "{number} at {index}"
        );
        counts[index] = before;
    }
}

#[test]
fn the_folder_belongs_to_this_user() {
    let check = |xdg: Option<&str>, home: Option<&str>, is_root, want: Option<&str>| {
        let got = folder(xdg.map(OsString::from), home.map(OsString::from), is_root);
        assert_eq!(got, want.map(PathBuf::from), "{xdg:?} {home:?} {is_root}");
    };
    for is_root in [false, true] {
        check(Some("/x"), Some("/h"), is_root, Some("/x/tiptoe"));
        check(Some("/x"), None, is_root, Some("/x/tiptoe"));
    }
    for nothing in [None, Some(""), Some("x"), Some("./x")] {
        check(nothing, Some("/h"), false, Some("/h/.cache/tiptoe"));
        check(nothing, Some("/h"), true, Some("/var/cache/tiptoe"));
        check(nothing, nothing, true, Some("/var/cache/tiptoe"));
        check(nothing, nothing, false, None);
    }
}

#[test]
fn the_key_is_of_this_machine_and_file() {
    let own = key().expect("a boot and a file");
    assert_eq!(own, key().expect("the same"));
    assert_eq!(own.lines().count(), 3);
    let known = ["boot ", "cpu ", "tiptoe "];
    assert!(
        own.lines()
            .zip(known)
            .all(|(line, word)| line.starts_with(word)),
        "{own}"
    );
    assert!(own.len() < 512);
    let scratch = Scratch::new("key");
    let [one, other] = ["one", "other"].map(|name| scratch.0.join(name));
    fs::write(&one, "tiptoe").expect("a file");
    fs::copy(&one, &other).expect("a file");
    let identity = |path: &Path| file_identity(path).expect("it is there");
    assert_ne!(identity(&one), identity(&other));
    let before = identity(&other);
    fs::rename(&one, &other).expect("ours");
    assert_ne!(identity(&other), before);
}

fn sane() -> impl Strategy<Value = f64> {
    1e-3..1e7
}

fn cost() -> impl Strategy<Value = Cost> {
    [sane(), sane(), sane()].prop_map(|mut ends| {
        ends.sort_by(f64::total_cmp);
        Cost::between(ends[0], ends[1], ends[2])
    })
}

fn comes_back<P: Price>(yardstick: f64, price: &P) -> bool {
    let text = encode(KEY, yardstick, price);
    assert!(
        text.len() <= MOST_BYTES - 400,
        "{} bytes and a longer key",
        text.len()
    );
    let (then, read) = decode::<P>(KEY, text.as_bytes()).expect("a price");
    let bits = |numbers: Vec<f64>| numbers.into_iter().map(f64::to_bits).collect::<Vec<_>>();
    then.to_bits() == yardstick.to_bits() && bits(read.numbers()) == bits(price.numbers())
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        yardstick in 1e-3..1e6,
        ns in vec(sane(), 3),
        costs in [cost(), cost(), cost()],
        // These ranges keep the gaps sorted. Each loop has at least 4 times as many functions as the one before, and
        // the times of calls differ by a factor of at most 2.9.
        shown in vec((1.0..2.0, -0.5..0.9, -0.5..0.9), 15),
    ) {
        assert!(comes_back(yardstick, &Trap(ns[0])));
        assert!(comes_back(yardstick, &Steps([ns[0], ns[1], ns[2]])));
        let [wait, passed_over, wake] = costs;
        assert!(comes_back(yardstick, &Calls { wait, passed_over, wake }));
        let numbers: Vec<f64> = shown.iter().flat_map(|(a, b, c)| [*a, *b, *c]).collect();
        let counts = InProcess::of_numbers(&numbers).expect("they are in order");
        assert_eq!(counts.numbers(), numbers);
        assert!(comes_back(yardstick, &counts));
    }

    #[test]
    fn text_that_is_not_a_price_is_rejected(text in vec(proptest::num::u8::ANY, 0..200), at in 0_usize..60) {
        let mut whole = encode(KEY, 2.0, &Trap(100.0)).into_bytes();
        let at = at.min(whole.len());
        whole.splice(at.., text);
        if let Some((then, Trap(ns))) = decode::<Trap>(KEY, &whole) {
            assert!(then.is_finite() && then > 0.0 && ns.is_finite() && ns > 0.0);
        }
    }
}
