//! Tries each instruction that the decoder knows as the first of a patched entry. Also executes repeatable instructions
//! twice.

#[path = "every/encodings.rs"]
mod encodings;
#[expect(dead_code, reason = "other tests use the rest of it")]
mod machine;
#[path = "every/state.rs"]
mod state;
#[path = "../src/twice.rs"]
mod twice;

use std::collections::BTreeSet;

use encodings::Encoding;
use iced_x86::{
    Code, FlowControl, InstructionInfoFactory, Mnemonic, OpAccess, Register, RflagsBits,
    UsedRegister,
};
use machine::{Machine, write};
use state::{State, caller, ending, prepare, registers, run};
use tiptoe_patch::{Body, FunctionCode, Hits, Patch, Refusal, Shape, shape};
use tiptoe_wire::calls::{FRAME_BYTES, words};

const SLOT: u32 = 20;
const CREDIT: u64 = 1 << 40;
const STATUS: u64 = 0x8d5;
/// Six instructions that a guarded jump may replace. They delay the `pushf` of `ending`, because code that soon reads
/// flags is no entry.
const PLAIN: [u8; 12] = [
    0x48, 0x8d, 0x76, 0, 0x48, 0x8d, 0x7f, 0, 0x90, 0x90, 0x90, 0x90,
];

impl Encoding {
    fn is_plain(&self, factory: &mut InstructionInfoFactory) -> bool {
        use Mnemonic::{
            Cpuid, Rdpid, Rdpmc, Rdpru, Rdrand, Rdseed, Rdtsc, Rdtscp, Wrfsbase, Wrpkru,
        };
        let varies = [Cpuid, Rdpid, Rdpmc, Rdpru, Rdrand, Rdseed, Rdtsc, Rdtscp];
        let mnemonic = self.instruction.mnemonic();
        self.instruction.flow_control() == FlowControl::Next
            && !varies.contains(&mnemonic)
            && !matches!(mnemonic, Wrfsbase | Wrpkru)
            && self.instruction.rflags_modified() & RflagsBits::AC == 0
            && !self.uses(factory, |used| {
                used.register() == Register::FS && writes(used)
            })
    }

    fn uses(
        &self,
        factory: &mut InstructionInfoFactory,
        wanted: impl Fn(&UsedRegister) -> bool,
    ) -> bool {
        let info = factory.info(&self.instruction);
        info.used_registers().iter().any(wanted)
    }

    fn uses_stack(&self, factory: &mut InstructionInfoFactory) -> bool {
        self.uses(factory, |used| {
            used.register().full_register() == Register::RSP
        })
    }

    fn defines(&self) -> u64 {
        let instruction = &self.instruction;
        let mut defined = instruction.rflags_modified() & !instruction.rflags_undefined();
        if instruction.mnemonic() == Mnemonic::Imul {
            // Intel and AMD set this flag differently.
            defined &= !RflagsBits::SF;
        }
        // The decoder's bits are not the processor's.
        let bits = [
            (RflagsBits::OF, 0x800),
            (RflagsBits::SF, 0x80),
            (RflagsBits::ZF, 0x40),
            (RflagsBits::AF, 0x10),
            (RflagsBits::PF, 4),
            (RflagsBits::CF, 1),
        ];
        let set = bits.iter().filter(|(bit, _)| defined & bit != 0);
        set.map(|(_, flag)| flag).sum()
    }

    fn seems_to_compare(&self, factory: &mut InstructionInfoFactory) -> bool {
        let info = factory.info(&self.instruction);
        let mut memory = info.used_memory().iter().map(|used| used.access());
        let registers = info.used_registers().iter();
        self.instruction.rflags_modified() != 0
            && !registers.clone().any(writes)
            && !memory.any(is_write)
    }
}

fn writes(used: &UsedRegister) -> bool {
    is_write(used.access())
}

fn is_write(access: OpAccess) -> bool {
    use OpAccess::{CondRead, NoMemAccess, None, Read};
    !matches!(access, CondRead | NoMemAccess | None | Read)
}

fn once(machine: &mut Machine, parts: &[&[u8]], flags: u64) -> State {
    let at = machine.room(0);
    let code = [
        &parts.concat()[..],
        &ending(machine, at + parts.concat().len() as u64),
    ]
    .concat();
    write(at, &code);
    run(machine, at, &registers(machine, flags))
}

fn is_roomy(machine: &Machine) -> bool {
    machine.at + 8192 < machine.data.start
}

fn roomy(machine: Option<Machine>) -> Machine {
    machine.filter(is_roomy).unwrap_or_else(|| {
        let machine = Machine::new();
        prepare();
        machine
    })
}

#[test]
fn executing_a_repeatable_instruction_twice_changes_nothing() {
    // push %rax; pushq $FLAGS; popfq; pop %rax: a hit's effect.
    const HIT: [u8; 8] = [0x50, 0x68, 0xd7, 0x0a, 0, 0, 0x9d, 0x58];
    let mut factory = InstructionInfoFactory::new();
    let (mut machine, mut allowed, mut wrong) = (None, BTreeSet::new(), BTreeSet::new());
    for encoding in encodings::ALL.iter() {
        let may = twice::may_be_repeated(&encoding.instruction);
        let seems = encoding.seems_to_compare(&mut factory);
        if !encoding.is_plain(&mut factory) || !(may || seems) {
            continue;
        }
        let name = format!("{:?}", encoding.instruction.mnemonic());
        let bytes = &encoding.bytes[..];
        for flags in [0, STATUS, 0x41, 0x814] {
            let mut here = roomy(machine);
            let first = once(&mut here, &[bytes], flags);
            let again = once(&mut here, &[bytes, bytes], flags);
            let hit = once(&mut here, &[bytes, &HIT, bytes], flags);
            machine = Some(here);
            let plain = first.difference(&again, u64::MAX);
            let difference = plain.or_else(|| first.difference(&hit, encoding.defines()));
            match (may, difference) {
                (true, None) => allowed.insert(name.clone()),
                (true, Some(difference)) => panic!("{bytes:x?}: {difference}"),
                (false, Some(_)) => wrong.insert(name.clone()),
                (false, None) => false,
            };
        }
    }
    let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    assert_eq!(allowed, names(&["Bt", "Cmp", "Test"]));
    // Repeating these must be detected; otherwise the test could not fail.
    let seen: BTreeSet<String> = names(&["Fld", "Fld1", "Fcomip", "Fincstp", "Cmc"]);
    assert!(wrong.is_superset(&seen), "{wrong:?}");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Count,
    Inside,
    Followed,
    Timed,
}

impl Mode {
    const ALL: [Mode; 4] = [Mode::Count, Mode::Inside, Mode::Followed, Mode::Timed];

    fn follows(self) -> bool {
        matches!(self, Mode::Followed | Mode::Timed)
    }

    fn body(self) -> Body {
        let hits = Hits::default();
        match self.follows() {
            false => Body::Count { slot: SLOT, hits },
            true => Body::Call {
                slot: SLOT,
                probe: 3,
                timed: self == Mode::Timed,
                hits,
            },
        }
    }

    fn plan(self, machine: &mut Machine, shape: &Shape) -> Option<Patch> {
        let shape = match self {
            Mode::Inside => shape.clone().preserving_everything(),
            _ => shape.clone(),
        };
        match machine.planner.plan(&shape, &self.body(), Vec::new) {
            Ok(patch) => Some(patch),
            // The code reads its caller's flags.
            Err(Refusal::NotEntry) => None,
            Err(refusal) => panic!("{refusal}"),
        }
    }
}

struct Entries {
    machine: Machine,
    frames: Vec<u64>,
}

impl Entries {
    fn end(&self) -> u64 {
        (self.frames.as_ptr() as u64).next_multiple_of(4096) + u64::from(FRAME_BYTES)
    }

    fn check(&mut self, encoding: &Encoding, mode: Mode, flags: u64) -> bool {
        let at = self.machine.room(0);
        let mut code = [&encoding.bytes[..], &PLAIN].concat();
        code.extend_from_slice(&ending(&self.machine, at + code.len() as u64));
        write(at, &code);
        let function = FunctionCode {
            address: at,
            bytes: &code,
            size: code.len(),
        };
        let registers = registers(&self.machine, flags);
        let expected = run(&self.machine, at, &registers);
        let Ok(shape) = shape(&function, 0) else {
            return false;
        };
        let Some(patch) = mode.plan(&mut self.machine, &shape) else {
            return false;
        };
        let found = self.run(&patch, at, &registers, mode);
        // A patch inside a function must keep flags. A followed call's patch is at the entry, where flags are free.
        let is_inside = !shape.is_entry() && !mode.follows();
        let keeps = mode == Mode::Inside || is_inside;
        let flags = match (keeps, expected.signal) {
            (true, _) => u64::MAX,
            (false, 0) => encoding.defines(),
            // After a fault the flags are the initial ones, which a hit changes.
            (false, _) => 0,
        };
        if let Some(difference) = expected.difference(&found, flags) {
            panic!("{:x?}, {mode:?}: {difference}", encoding.bytes);
        }
        patch.site > at
    }

    fn run(&mut self, patch: &Patch, at: u64, registers: &machine::Registers, mode: Mode) -> State {
        self.machine.apply(patch);
        self.machine.set_frames(self.end());
        self.machine.slab.fill(0);
        self.machine.slab[0] = CREDIT;
        if mode.follows() {
            write(patch.callers, &caller().to_le_bytes());
        }
        let found = run(&self.machine, at, registers);
        let word = if mode.follows() { words::CALLS } else { 0 };
        let hits = self.machine.count((SLOT + word) as usize);
        assert!(hits == 1 || found.signal != 0, "{hits} hits of {patch:x?}");
        self.machine.remove(patch);
        found
    }
}

#[test]
fn a_patched_entry_keeps_the_state_of_its_first_instruction() {
    let mut factory = InstructionInfoFactory::new();
    let mut entries: Option<Entries> = None;
    let (mut checked, mut moved) = (0, 0);
    for encoding in encodings::ALL.iter() {
        if !encoding.is_plain(&mut factory) {
            continue;
        }
        let roomy_one = entries.take().filter(|here| is_roomy(&here.machine));
        let mut here = roomy_one.unwrap_or_else(|| Entries {
            machine: roomy(None),
            frames: vec![0; 2048],
        });
        // These may read the return address, which differs in a followed call.
        let modes = match encoding.uses_stack(&mut factory) {
            true => &Mode::ALL[..2],
            false => &Mode::ALL,
        };
        for mode in modes {
            let flags = STATUS & (checked as u64 * 0x155);
            moved += usize::from(here.check(encoding, *mode, flags));
        }
        checked += 1;
        entries = Some(here);
    }
    println!("{checked} instructions, {moved} sites after them");
    assert!(checked > 5000 && moved > 500);
}

#[test]
fn all_instructions_are_tried() {
    // The decoder lists this instruction with 64-bit addresses, but decodes it only with shorter ones.
    assert_eq!(encodings::missing(), [Code::Montmul_64]);
}
