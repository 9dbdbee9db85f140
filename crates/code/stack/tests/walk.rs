//! Compares walks with framehop's, on threads that wait deep in libraries.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command, Stdio};

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use object::{Object as _, ObjectSection as _, ObjectSegment as _};
use tiptoe_stack::Frame;
use tiptoe_stack::compile::{Section, Table};

const PROGRAM: &str = r#"
#include <alloca.h>
#include <semaphore.h>
#include <unistd.h>
#include <condition_variable>
#include <cstdio>
#include <future>
#include <mutex>
#include <thread>

static std::mutex held;
static std::promise<int> never;
static sem_t closed;

__attribute__((noinline)) static int on_alloca(int size) {
    volatile char *room = (char *)alloca(size);
    room[size - 1] = 1;
    sem_wait(&closed);
    return room[size - 1];
}
__attribute__((noinline)) static int deep(int left, int (*last)(int)) {
    volatile char room[48];
    room[0] = left;
    return (left ? deep(left - 1, last) : last(100)) + room[0];
}
static int on_mutex(int) { std::lock_guard lock(held); return 1; }
static int on_condition(int) {
    std::mutex own;
    std::unique_lock lock(own);
    std::condition_variable never_notified;
    never_notified.wait(lock, [] { return false; });
    return 1;
}
static int on_future(int) { return never.get_future().get(); }
static int on_once(int) {
    static std::once_flag once;
    std::call_once(once, [] { on_alloca(300); });
    return 1;
}
static int on_exception(int) {
    try { throw 1; } catch (int) { return on_mutex(1); }
}

int main() {
    held.lock();
    sem_init(&closed, 0, 0);
    int (*waits[])(int) = {on_mutex, on_condition, on_future, on_alloca, on_once, on_exception};
    std::thread last;
    for (auto wait : waits) {
        if (last.joinable()) last.detach();
        last = std::thread([=] { deep(9, wait); });
    }
    usleep(300000);
    puts("ready");
    fflush(stdout);
    last.join();
}
"#;

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(flags: &[&str]) -> (tempfile::TempDir, Program) {
    let folder = tempfile::tempdir().expect("a folder");
    let [source, program] = ["walk.cc", "walk"].map(|name| folder.path().join(name));
    std::fs::write(&source, PROGRAM).expect("written");
    let built = Command::new("g++")
        .args(["-O2", "-pthread", "-w", "-o"])
        .args([&program, &source])
        .args(flags)
        .status();
    assert!(built.expect("g++ runs").success());
    let mut child = Command::new(program)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    let out = child.stdout.take().expect("piped");
    BufReader::new(out).read_line(&mut line).expect("it says");
    assert_eq!(line, "ready\n");
    (folder, Program(child))
}

struct MappedFile {
    unwinder: UnwinderX86_64<Vec<u8>>,
    tables: BTreeMap<u64, (u64, u64, Table)>,
    memory: File,
}

impl MappedFile {
    fn of(pid: u32) -> MappedFile {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
        let mut mapped = MappedFile {
            unwinder: UnwinderX86_64::new(),
            tables: BTreeMap::new(),
            memory: File::open(format!("/proc/{pid}/mem")).expect("memory"),
        };
        for line in maps.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [range, "r-xp", offset, _, _, path] = words[..]
                && path.starts_with('/')
            {
                let (start, end) = range.split_once('-').expect("a range");
                let [start, end, offset] =
                    [start, end, offset].map(|hex| u64::from_str_radix(hex, 16).expect("hex"));
                mapped.add(path, start, end, offset);
            }
        }
        mapped
    }

    fn add(&mut self, path: &str, start: u64, end: u64, offset: u64) {
        let bytes = std::fs::read(path).expect("it can be read");
        let file = object::File::parse(&*bytes).expect("an ELF file");
        let mut segments = file.segments();
        let of_text = |s: &object::Segment<'_, '_>| {
            let (at, size) = s.file_range();
            (at..at + size).contains(&offset) || (offset..offset + (end - start)).contains(&at)
        };
        let text = segments.find(of_text).expect("a segment");
        let bias = start - offset + text.file_range().0 - text.address();
        let section = |name| {
            let section = file.section_by_name(name)?;
            Some((section.address(), section.data().ok()?.to_vec()))
        };
        let Some((address, eh_frame)) = section(".eh_frame") else {
            return;
        };
        let table = Table::compile(&Section {
            bytes: &eh_frame,
            address,
            word: 8,
            x86_64: true,
        });
        self.tables.insert(start, (end, bias, table));
        let index = section(".eh_frame_hdr").expect("an index");
        let sections = ExplicitModuleSectionInfo {
            eh_frame_svma: Some(address..address + eh_frame.len() as u64),
            eh_frame: Some(eh_frame),
            eh_frame_hdr_svma: Some(index.0..index.0 + index.1.len() as u64),
            eh_frame_hdr: Some(index.1),
            ..Default::default()
        };
        let module = Module::new(path.to_owned(), start..end, bias, sections);
        self.unwinder.add_module(module);
    }

    fn word(&self, at: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, at).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    fn theirs(&self, first: &Frame) -> Vec<Frame> {
        let mut at = UnwindRegsX86_64::new(first.pc, first.sp, first.bp);
        let mut address = FrameAddress::from_instruction_pointer(first.pc);
        let mut cache = CacheX86_64::<_>::new();
        let mut read = |at| self.word(at).ok_or(());
        let mut frames = Vec::new();
        while let Ok(Some(pc)) = self
            .unwinder
            .unwind_frame(address, &mut at, &mut cache, &mut read)
        {
            let (sp, bp) = (at.sp(), at.bp());
            frames.push(Frame { pc, sp, bp });
            match FrameAddress::from_return_address(pc) {
                Some(next) => address = next,
                None => break,
            }
        }
        frames
    }

    fn ours(&self, first: &Frame) -> Vec<Frame> {
        let (mut at, mut looked_at) = (*first, first.pc);
        let mut frames = Vec::new();
        for _ in 0..100 {
            let around = self.tables.range(..=looked_at).next_back();
            let Some((_, (end, bias, table))) = around.filter(|(_, (end, ..))| looked_at < *end)
            else {
                break;
            };
            let _ = end;
            let rule = table.rule(looked_at - bias);
            let Some(next) = rule.step(&at, |at| self.word(at)) else {
                break;
            };
            frames.push(next);
            (at, looked_at) = (next, next.pc - 1);
        }
        frames
    }
}

fn threads(pid: u32) -> Vec<Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
    let name = |task: std::io::Result<std::fs::DirEntry>| task.ok()?.file_name().into_string().ok();
    let ids = tasks.filter_map(|task| name(task)?.parse().ok());
    ids.map(Pid::from_raw).collect()
}

fn check(flags: &[&str]) {
    let (_folder, program) = start(flags);
    let pid = program.0.id();
    let mapped = MappedFile::of(pid);
    let mut depths = Vec::new();
    for thread in threads(pid) {
        ptrace::seize(thread, ptrace::Options::empty()).expect("it can be traced");
        ptrace::interrupt(thread).expect("it can be stopped");
        waitpid(thread, Some(WaitPidFlag::__WALL)).expect("it stops");
        let regs = ptrace::getregs(thread).expect("it has registers");
        let first = Frame {
            pc: regs.rip,
            sp: regs.rsp,
            bp: regs.rbp,
        };
        let (ours, theirs) = (mapped.ours(&first), mapped.theirs(&first));
        ptrace::detach(thread, None).expect("it goes on");
        assert_eq!(ours, theirs, "{flags:x?}");
        depths.push(ours.len());
    }
    depths.sort();
    println!("{flags:?}: frames per thread {depths:?}");
    // The main thread waits in `main`, each other thread in ten nested calls of `deep`.
    assert_eq!(depths.len(), 7);
    assert!(depths[0] >= 4 && depths[1] >= 14, "{depths:?}");
}

#[test]
#[cfg_attr(miri, ignore = "starts a program")]
fn stacks_of_waiting_threads_are_those_of_framehop() {
    check(&["-fomit-frame-pointer"]);
    check(&["-fno-omit-frame-pointer"]);
}
