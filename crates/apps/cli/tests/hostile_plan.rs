//! An agent (tiptoe's library in a program) reads requests from shared memory (the plan). It must refuse requests
//! that tiptoe never makes. Otherwise a process that writes to the plan could do more to the program than patch it.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use object::{Object as _, ObjectSymbol as _};
use tiptoe_attach::inject::{Inject, Resident, inject};
use tiptoe_tests::process::wait_until;
use tiptoe_tests::{Process, is_root, skipped, target};
use tiptoe_wire::{Data, Geometry, Map, MapContent, Plan, Request, Words, arena};

const GEOMETRY: Geometry = Geometry {
    slots: 64,
    slabs: 8,
    rings: false,
    hits: false,
};
const PATIENT: Duration = Duration::from_secs(60);

struct Segments {
    plan: Plan<'static>,
    data: Data<'static>,
}

impl Segments {
    fn map(data: &OwnedFd, plan: &OwnedFd) -> io::Result<Segments> {
        let words = |fd: &OwnedFd, len: u64| {
            let (len, protection) = (len as usize, libc::PROT_READ | libc::PROT_WRITE);
            let fd = fd.as_raw_fd();
            // SAFETY: a new mapping at an address that the kernel chooses overlaps no other.
            let at = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    len,
                    protection,
                    libc::MAP_SHARED,
                    fd,
                    0,
                )
            };
            assert_ne!(at, libc::MAP_FAILED);
            // SAFETY: the memory was mapped just now and is never unmapped; the seals keep the file from shrinking.
            unsafe { Words::from_raw(at.cast(), len) }
        };
        let (plan, data) = (words(plan, Plan::BYTES), words(data, GEOMETRY.data_bytes()));
        let data = Data::new(data, GEOMETRY).expect("mapped with this geometry");
        let segments = Segments {
            plan: Plan::new(plan),
            data,
        };
        segments.plan.format(GEOMETRY, false);
        // SAFETY: gettid has no arguments.
        segments.own(unsafe { libc::gettid() } as u32);
        Ok(segments)
    }

    /// Makes thread `tid` the owner of the shared memory, as a running tiptoe does. Without an owner (0) the agent
    /// restores the program.
    fn own(&self, tid: u32) {
        let owner = self.data.owner().expect("the owner word");
        owner.store(tid, Ordering::Release);
        // SAFETY: FUTEX_WAKE does not read memory.
        unsafe { libc::syscall(libc::SYS_futex, owner.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    fn request(&self, request: Request) -> u64 {
        self.request_all(request, 1);
        self.data.result(0)
    }

    fn request_all(&self, request: Request, count: usize) {
        let sequence = self.plan.publish(request, count);
        let owner = self.data.owner().expect("the owner word");
        self.own(owner.load(Ordering::Acquire));
        wait_until("an answer", PATIENT, || {
            self.data.acknowledged() >= sequence
        });
        assert_eq!(self.data.outcome(), 0, "{request:?}");
    }

    fn map_at(&self, base: u64, len: u64, content: MapContent) -> u64 {
        self.plan.put_map(0, Map { base, len, content });
        self.request(Request::Map)
    }

    fn resolve(&self, address: u64) -> u64 {
        self.plan.put_address(0, address);
        self.request(Request::Resolve)
    }
}

fn mappings(pid: u32) -> Vec<(u64, u64, String)> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
    let hex = |word: &str| u64::from_str_radix(word, 16).expect("a number");
    let line = |line: &str| {
        let (range, _) = line.split_once(' ').expect("words");
        let (start, end) = range.split_once('-').expect("a range");
        (hex(start), hex(end), line.to_owned())
    };
    text.lines().map(line).collect()
}

fn address_of(file: &[u8], name: &str) -> u64 {
    let file = object::File::parse(file).expect("an ELF file");
    let found = file
        .symbols()
        .chain(file.dynamic_symbols())
        .find(|symbol| symbol.name() == Ok(name));
    found.unwrap_or_else(|| panic!("no {name}")).address()
}

/// Returns how many reads a thread makes while `act` runs. The agent's thread also reads files without a request.
fn reads(pid: u32, tid: u32, act: impl FnOnce()) -> u64 {
    let count = || {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/io")).expect("it lives");
        let mut lines = text.lines();
        let count = lines.find_map(|line| line.strip_prefix("syscr: "));
        count.expect("a count").parse::<u64>().expect("a number")
    };
    let before = count();
    act();
    count() - before
}

#[test]
fn a_plan_that_does_more_than_patch_is_refused() {
    if !is_root() {
        return skipped("a hostile plan", "needs root");
    }
    let agent = tiptoe_image::AGENT;
    let mut waiting = Process::waiting(&target("ifunc"), &["10"]);
    let pid = waiting.pid();
    let mut segments = None;
    let program =
        tiptoe_sys::host::Process::new(pid).and_then(tiptoe_sys::host::Process::running_program);
    let injected = inject(Inject {
        pid,
        program: program.expect("it lives"),
        agent,
        entry_offset: address_of(agent, "tiptoe_agent_entry"),
        resident: &|| Resident::None,
        data_size: GEOMETRY.data_bytes(),
        plan_size: Plan::FILE_BYTES,
        allow_seccomp: false,
        deadline: PATIENT,
        prepare: &mut |data, plan| {
            segments = Some(Segments::map(data, plan)?);
            Ok(())
        },
    });
    assert_eq!(injected.expect("the agent enters").entry_result, 0);
    let segments = segments.expect("it was prepared");
    wait_until("a greeting", PATIENT, || segments.data.hello().is_some());
    let exe = fs::read(target("ifunc")).expect("the program");
    let maps = mappings(pid);
    let path = target("ifunc");
    let path = path.to_str().expect("text");
    let program = maps.iter().find(|(_, _, line)| line.ends_with(path));
    let start = program.expect("the program's file").0;
    // The program is position-independent: its addresses begin at 0.
    let at = |name| address_of(&exe, name) + start;

    // The agent may call only the first instruction of an IFUNC's resolver.
    assert_eq!(segments.resolve(at("resolve")), at("chosen"));
    for address in [at("chosen"), at("main"), at("resolve") + 1, 0, start] {
        assert_eq!(segments.resolve(address), 0, "{address:#x}");
    }

    // Regression: the agent read a file's tables once for each of its resolvers; libc has over a hundred.
    const MANY: usize = 100;
    let thread = segments.data.thread();
    let one = reads(pid, thread, || {
        segments.resolve(at("resolve"));
    });
    let many = reads(pid, thread, || {
        (0..MANY).for_each(|index| segments.plan.put_address(index, at("resolve")));
        segments.request_all(Request::Resolve, MANY);
        let chosen = (0..MANY).filter(|index| segments.data.result(*index) == at("chosen"));
        assert_eq!(chosen.count(), MANY);
    });
    assert!(many < 10 * one, "{one} reads for one, {many} for {MANY}");

    // The agent may map only whole arenas (`arena::LEN` bytes for generated code) of the plan's code, and only into
    // free space.
    const EINVAL: u64 = 22;
    let free = (start - (64 << 20)) & !(arena::LEN - 1);
    let code = |offset| MapContent::Code { offset };
    assert_eq!(
        segments.map_at(free + 4096, arena::LEN, code(0)),
        EINVAL,
        "askew"
    );
    assert_eq!(segments.map_at(free, 0, code(0)), EINVAL, "empty");
    for offset in [Plan::CODE_BYTES, 1 << 46] {
        assert_eq!(
            segments.map_at(free, arena::LEN, code(offset)),
            EINVAL,
            "{offset:#x}"
        );
    }
    let taken = start & !(arena::LEN - 1);
    for content in [code(0), MapContent::Words] {
        assert_ne!(segments.map_at(taken, arena::LEN, content), 0, "taken");
    }
    assert_eq!(segments.map_at(free, 4 * arena::LEN, code(0)), 0);
    let mapped = mappings(pid);
    let (_, end, line) = mapped
        .iter()
        .find(|(from, ..)| *from == free)
        .expect("it is mapped");
    assert_eq!(*end, free + 4 * arena::LEN);
    assert!(line.contains(" r-xs ") && line.contains("memfd:"), "{line}");
    segments.own(0);
    waiting.go();
    assert!(waiting.finish().1.success());
}
