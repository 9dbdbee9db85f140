//! Every opcode under a uprobe has the same effect as without one.
//!
//! opcodes.c runs slots of code three times without probes, then with them. A slot is `traps, instruction, nops, jmp
//! FALL`; its run ends at FALL. The nops are more bytes than a uprobe copies, and serve as immediates of any length.
//! Instructions that fault in the first run are skipped. The probed run must equal the second and third; if these two
//! differ, the probed run must only not fault.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use tiptoe_kernel::{KernelProbe, UprobeSet, unprobeable};
use tiptoe_sys::host::{Capabilities, Process};

const SLOT: usize = 192;
const BEGIN: usize = 128;
const NOP: u8 = 0x90;
const TRAP: u8 = 0xcc;
const JUMP: u8 = 0xe9;
const BATCH: usize = 8192;
const REPEAT: u64 = 2;
const DATA: u32 = 0x2000_0000;
const FALL: u32 = 0x3000_1000;
const CODE: u32 = 0x4000_0000;
/// A placeholder for the distance from the next instruction to the data.
const HERE: [u8; 4] = [0xfe, 0xca, 0xad, 0xde];
const WORDS: usize = 21;
const SIGNAL: usize = 18;

type Outcome = [u64; WORDS];

type Code = Vec<u8>;

struct Runner {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    code: PathBuf,
    out: PathBuf,
}

impl Runner {
    fn start() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the numbers must only differ.
        let number = NEXT.fetch_add(1, Relaxed);
        let name = format!("tiptoe-opcodes-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        let (program, code, out) = (
            folder.join("opcodes"),
            folder.join("opcodes.code"),
            folder.join("opcodes.out"),
        );
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/opcodes.c");
        let built = Command::new("cc")
            .args(["-O2", "-static", "-no-pie", "-o"])
            .args([&program, &source])
            .status();
        assert!(built.expect("a C compiler").success());
        // -R: a random layout may put the heap anywhere in the first GiB, where the runner needs addresses.
        let mut child = Command::new("setarch")
            .arg("-R")
            .args([&program, &code, &out])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the runner starts");
        Self {
            stdin: child.stdin.take().expect("a pipe"),
            stdout: BufReader::new(child.stdout.take().expect("a pipe")),
            child,
            code,
            out,
        }
    }

    fn run(&mut self, slots: usize) -> Vec<Outcome> {
        writeln!(self.stdin, "{slots}").expect("the runner reads");
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("the runner writes");
        assert_eq!(line, "done\n", "the runner: {:?}", self.child.try_wait());
        let bytes = std::fs::read(&self.out).expect("the outcomes");
        let (words, _) = bytes.as_chunks::<8>();
        let (outcomes, _) = words.as_chunks::<WORDS>();
        outcomes
            .iter()
            .map(|outcome| outcome.map(u64::from_ne_bytes))
            .collect()
    }

    /// Runs these instructions from a new file, because the kernel may still be removing probes from the previous one.
    fn run_new(&mut self, codes: &[Code]) -> Vec<Outcome> {
        let _ = std::fs::remove_file(&self.code);
        let image: Vec<u8> = codes.iter().enumerate().flat_map(slot).collect();
        std::fs::write(&self.code, image).expect("room for the code");
        self.run(codes.len())
    }

    fn compare(&mut self, codes: &[Code]) -> Verdicts {
        let outcomes = self.run_new(codes);
        let well = codes
            .iter()
            .zip(outcomes)
            .filter(|(_, outcome)| outcome[SIGNAL] == 0);
        let codes: Vec<Code> = well.map(|(code, _)| code.clone()).collect();
        if codes.is_empty() {
            return Verdicts::default();
        }
        let (first, second) = (self.run_new(&codes), self.run(codes.len()));
        let probe = |index: usize| KernelProbe {
            path: self.code.clone(),
            offset: (index * SLOT + BEGIN) as u64,
        };
        let probes: Vec<KernelProbe> = (0..codes.len()).map(probe).collect();
        let process = Process::new(self.child.id()).expect("the runner");
        let set = UprobeSet::open(process, &probes).expect("uprobes");
        let probed = self.run(codes.len());
        let counts = set.read().expect("counts");
        let mut verdicts = Verdicts {
            ran: codes.len(),
            ..Verdicts::default()
        };
        for (index, code) in codes.into_iter().enumerate() {
            let (bare, probed) = (&first[index], &probed[index]);
            let same = bare == probed || bare != &second[index] && probed[SIGNAL] == 0;
            if !same {
                verdicts.wrong.push((code, difference(bare, probed)));
            } else if bare[SIGNAL] == 0 && counts[index].count != REPEAT {
                // After a fault of the bare run, counts are not checked, because the instruction may run any number of
                // times.
                verdicts.uncounted.push((code, counts[index].count));
            }
        }
        verdicts
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.code);
        let _ = std::fs::remove_file(&self.out);
    }
}

#[derive(Debug, Default)]
struct Verdicts {
    ran: usize,
    uncounted: Vec<(Code, u64)>,
    wrong: Vec<(Code, String)>,
}

impl Verdicts {
    fn add(&mut self, more: Verdicts) {
        self.ran += more.ran;
        self.uncounted.extend(more.uncounted);
        self.wrong.extend(more.wrong);
    }
}

fn difference(bare: &Outcome, probed: &Outcome) -> String {
    const NAMES: [&str; WORDS] = [
        "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12",
        "r13", "r14", "r15", "flags", "exit", "signal", "vectors", "memory",
    ];
    let differ = (0..WORDS).filter(|word| bare[*word] != probed[*word]);
    let words = differ.map(|word| format!("{} {:x} {:x}", NAMES[word], bare[word], probed[word]));
    words.collect::<Vec<_>>().join(", ")
}

fn slot((index, code): (usize, &Code)) -> [u8; SLOT] {
    let mut slot = [NOP; SLOT];
    let at = CODE + (index * SLOT) as u32;
    slot[..BEGIN].fill(TRAP);
    slot[SLOT - 5] = JUMP;
    slot[SLOT - 4..].copy_from_slice(&FALL.wrapping_sub(at + SLOT as u32).to_le_bytes());
    slot[BEGIN..BEGIN + code.len()].copy_from_slice(code);
    if code.ends_with(&HERE) {
        let next = BEGIN + code.len();
        let distance = (DATA + 0x1200).wrapping_sub(at + next as u32);
        slot[next - HERE.len()..next].copy_from_slice(&distance.to_le_bytes());
    }
    slot
}

const PREFIXES: [&[u8]; 13] = [
    &[],
    &[0x66],
    &[0xf2],
    &[0xf3],
    &[0x48],
    &[0x41],
    &[0x66, 0x48],
    &[0xf2, 0x48],
    &[0xf3, 0x48],
    &[0x65],
    &[0x67],
    &[0x66, 0xf2],
    &[0x48, 0x66],
];

/// Returns ModRM bytes with displacements.
fn operands() -> Vec<Vec<u8>> {
    let registers = (0xc0..=0xff).map(|operand| vec![operand]);
    let memory = (0..8u8).flat_map(|which| {
        let operand = |low: u8, more: &[u8]| [&[which << 3 | low], more].concat();
        // (%rsi), (%rbx), 16(%rsi), DATA + 0x1200 absolute and relative
        [
            operand(6, &[]),
            operand(3, &[]),
            operand(0x46, &[0x10]),
            operand(4, &[&[0x25][..], &(DATA + 0x1200).to_le_bytes()].concat()),
            operand(5, &HERE),
        ]
    });
    registers.chain(memory).collect()
}

fn special() -> Vec<Code> {
    let near = (0x80..=0x8f).map(|opcode| vec![0x0f, opcode, 0x20, 0, 0, 0]);
    let calls = [0xe8, 0xe9].map(|opcode| vec![opcode, 0x20, 0, 0, 0]);
    let short = (0x70..=0x7f).chain(0xe0..=0xe3).chain([0xeb]);
    let moves =
        (0xa0..=0xa3).map(|opcode| [&[opcode], &u64::from(DATA).to_le_bytes()[..]].concat());
    let plain: Vec<Code> = near
        .chain(calls)
        .chain(short.map(|opcode| vec![opcode, 0x20]))
        .chain(moves)
        .chain([
            vec![0xc8, 0x10, 0, 0],
            vec![0xc8, 0x10, 0, 1],
            vec![0xc2, 8, 0],
        ])
        .chain([0, 0x40].map(|form| vec![0x0f, 0x1f, form, 0]))
        .chain([
            vec![0x0f, 0x1f, 0x44, 0, 0],
            vec![0x66, 0x0f, 0x1f, 0x44, 0, 0],
        ])
        .collect();
    let prefixed = PREFIXES
        .iter()
        .flat_map(|prefix| plain.iter().map(|code| [prefix, &code[..]].concat()));
    prefixed.collect()
}

fn legacy() -> impl Iterator<Item = Code> {
    const MAPS: [&[u8]; 4] = [&[], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]];
    let heads = PREFIXES
        .iter()
        .flat_map(|prefix| MAPS.map(|map| [*prefix, map].concat()));
    heads.flat_map(with_operands)
}

fn vex() -> impl Iterator<Item = Code> {
    let two = (0..8u8).map(|low| vec![0xc5, 0xf8 | low]);
    let three = (1..=3u8).flat_map(|map| {
        (0..16u8).map(move |low| vec![0xc4, 0xe0 | map, (low & 8) << 4 | 0x78 | low & 7])
    });
    let evex = (1..=6u8).flat_map(|map| {
        (0..48u8).map(move |low| {
            let (wide, pp, length, mask) = (low & 1, low >> 1 & 3, low / 16, low >> 3 & 1);
            vec![
                0x62,
                0xf0 | map,
                wide << 7 | 0x7c | pp,
                length << 5 | 8 | mask,
            ]
        })
    });
    two.chain(three).chain(evex).flat_map(with_operands)
}

fn with_operands(head: Code) -> impl Iterator<Item = Code> {
    (0..=0xffu8).flat_map(move |opcode| {
        let head = head.clone();
        operands()
            .into_iter()
            .map(move |operand| [&head[..], &[opcode], &operand].concat())
    })
}

/// Excludes instructions that a hypervisor handles, and loop instructions that jump back, which run arbitrarily often.
fn is_ours(code: &Code) -> bool {
    let hypervisor = |three: &[u8]| matches!(three, [0x0f, 1, 0xc1 | 0xd9]);
    let to_itself = |two: &[u8]| matches!(two, [0xe0..=0xe2, 0xf0..=0xff]);
    !code.windows(3).any(hypervisor) && !code.windows(2).any(to_itself)
}

fn share(codes: impl Iterator<Item = Code>) -> impl Iterator<Item = Code> {
    let scale = std::env::var("TIPTOE_TEST_SCALE")
        .ok()
        .and_then(|scale| scale.parse().ok());
    // A prime, so that the sample has different places of the generators' loops.
    let step = match scale.unwrap_or(0.01) {
        scale if scale < 1.0 => 101,
        _ => 1,
    };
    codes.step_by(step)
}

#[test]
fn a_probed_instruction_has_the_effect_of_a_bare_one() {
    if let Err(refusal) = Capabilities::get().process_uprobes {
        return println!("skipped: opcodes under uprobes ({refusal})");
    }
    let codes = special().into_iter().chain(share(legacy().chain(vex())));
    let codes = codes.filter(|code| {
        let padded = [&code[..], &[NOP; 16]].concat();
        is_ours(code) && unprobeable(&padded, false).is_none()
    });
    let codes: Vec<Code> = codes.collect();
    let mut runner = Runner::start();
    let mut all = Verdicts::default();
    for batch in codes.chunks(BATCH) {
        all.add(runner.compare(batch));
    }
    println!(
        "{} instructions, of which {} run here",
        codes.len(),
        all.ran
    );
    let shown = |code: &Code| {
        code.iter()
            .map(|byte| format!("{byte:02x} "))
            .collect::<String>()
    };
    let wrong = all
        .wrong
        .iter()
        .map(|(code, how)| format!("{}: {how}\n", shown(code)));
    let uncounted = all
        .uncounted
        .iter()
        .map(|(code, count)| format!("{}: {count} of {REPEAT}\n", shown(code)));
    let faults: String = wrong.chain(uncounted).collect();
    assert!(
        faults.is_empty(),
        "{} wrong, {} not counted:\n{faults}",
        all.wrong.len(),
        all.uncounted.len()
    );
    assert!(all.ran > codes.len() / 10, "hardly any ran");
}
