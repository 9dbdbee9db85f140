//! Malicious debug information must give an answer or an error soon.

#[path = "common/dwarf.rs"]
mod dwarf;
#[path = "common/elf.rs"]
mod elf;

use std::time::{Duration, Instant};

use dwarf::{Dwarf, dw};
use proptest::prelude::*;
use tiptoe_symbol::variable::{Plan, VariableError, Watch};
use tiptoe_symbol::{Content, Image, NoDebugFiles};

/// A location: the address 0x100.
const AT: &[u8] = &[9, 3, 0, 1, 0, 0, 0, 0, 0, 0];

fn plan(sections: &[(&str, &[u8])], text: &str) -> Result<Plan, VariableError> {
    let file = Content::from(elf::elf(sections));
    let image = Image::parse(&file, &NoDebugFiles).unwrap();
    let watch = Watch::parse(text).unwrap();
    image.variables(&file, &NoDebugFiles, |variables| variables.plan(&watch))
}

#[test]
#[ignore = "nightly: asserts a time"]
fn an_answer_takes_bounded_time() {
    for (what, ask) in [
        (
            "refer to themselves",
            types_that_refer_to_themselves as fn(),
        ),
        ("multiply", structures_that_multiply),
        ("in a cycle", declarations_in_a_cycle),
        ("without bytes", attributes_without_bytes),
        ("tables that overlap", tables_that_overlap),
        ("names that overlap", names_that_overlap),
    ] {
        let start = Instant::now();
        ask();
        let took = start.elapsed();
        assert!(took < Duration::from_secs(20), "{what}: {took:?}");
    }
}

fn of_unit(dwarf: Dwarf, text: &str) -> Result<Plan, VariableError> {
    let (info, abbrev) = dwarf.finish();
    plan(&[(".debug_info", &info), (".debug_abbrev", &abbrev)], text)
}

fn variable(dwarf: &mut Dwarf) -> u8 {
    let attributes = [
        (dw::NAME, dw::STRING),
        (dw::TYPE, dw::REF4),
        (dw::LOCATION, dw::EXPRLOC),
    ];
    dwarf.kind(dw::VARIABLE, false, &attributes)
}

#[test]
fn the_unit_made_here_is_read() {
    let mut dwarf = Dwarf::new();
    let variable = variable(&mut dwarf);
    let base = dwarf.kind(
        0x24,
        false,
        &[(dw::NAME, dw::STRING), (dw::SIZE, dw::DATA1)],
    );
    let int = dwarf.entry(base, &[b"int\0", &[4]]);
    dwarf.entry(variable, &[b"x\0", &int.to_le_bytes(), AT]);
    let plan = of_unit(dwarf, "x").unwrap();
    assert_eq!(
        (plan.value.name.as_str(), plan.length(None)),
        ("int", Ok(4))
    );
}

#[test]
fn types_that_refer_to_themselves() {
    for tag in [dw::TYPEDEF, dw::POINTER, dw::ARRAY] {
        let mut dwarf = Dwarf::new();
        let variable = variable(&mut dwarf);
        let alias = dwarf.kind(tag, false, &[(dw::TYPE, dw::REF4)]);
        let at = dwarf.here();
        dwarf.entry(alias, &[&at.to_le_bytes()]);
        dwarf.entry(variable, &[b"x\0", &at.to_le_bytes(), AT]);
        let text = ["x", "******x"][usize::from(tag == dw::POINTER)];
        let plan = of_unit(dwarf, text);
        println!("{tag:#x}: {plan:?}");
        assert_eq!(plan.is_ok(), tag != dw::TYPEDEF);
    }
}

/// Each structure has three nameless members, of the next structure's type (3^16 paths) or of the first structure's
/// (a cycle).
#[test]
fn structures_that_multiply() {
    for circle in [false, true] {
        let mut dwarf = Dwarf::new();
        let variable = variable(&mut dwarf);
        let structure = dwarf.kind(dw::STRUCTURE, true, &[]);
        let member = dwarf.kind(
            dw::MEMBER,
            false,
            &[(dw::TYPE, dw::REF4), (dw::PLACE, dw::DATA1)],
        );
        let first = dwarf.here();
        for _ in 0..40 {
            dwarf.entry(structure, &[]);
            let next = if circle { first } else { dwarf.here() + 19 };
            for _ in 0..3 {
                dwarf.entry(member, &[&next.to_le_bytes(), &[0]]);
            }
            dwarf.end();
        }
        dwarf.entry(structure, &[]);
        dwarf.end();
        dwarf.entry(variable, &[b"x\0", &first.to_le_bytes(), AT]);
        let error = of_unit(dwarf, "x.y").unwrap_err();
        println!("{error}");
        assert!(matches!(
            error,
            VariableError::Damaged { .. } | VariableError::NoType { .. }
        ));
    }
}

#[test]
fn declarations_in_a_cycle() {
    let mut dwarf = Dwarf::new();
    let nameless = [(dw::SPECIFICATION, dw::REF4), (dw::LOCATION, dw::EXPRLOC)];
    let nameless = dwarf.kind(dw::VARIABLE, false, &nameless);
    for _ in 0..10_000 {
        let at = dwarf.here();
        dwarf.entry(nameless, &[&at.to_le_bytes(), AT]);
    }
    let error = of_unit(dwarf, "x").unwrap_err();
    assert!(
        matches!(error, VariableError::NoSuchVariable { .. }),
        "{error}"
    );
}

#[test]
fn attributes_without_bytes() {
    let mut dwarf = Dwarf::new();
    let flags = vec![(0x3f, dw::PRESENT); 250_000];
    let kind = dwarf.kind(dw::VARIABLE, false, &flags);
    for _ in 0..250_000 {
        dwarf.entry(kind, &[]);
    }
    let error = of_unit(dwarf, "x").unwrap_err();
    assert!(matches!(error, VariableError::Damaged { .. }), "{error}");
}

#[test]
fn tables_that_overlap() {
    let mut abbrev = Vec::new();
    for _ in 0..100_000 {
        abbrev.extend([1, dw::VARIABLE, 0, 0, 0]);
    }
    let mut info = Vec::new();
    for unit in 0..50_000_u32 {
        info.extend([8, 0, 0, 0, 4, 0]);
        info.extend((unit * 5).to_le_bytes());
        info.extend([8, 1]);
    }
    let sections = [(".debug_info", &info[..]), (".debug_abbrev", &abbrev[..])];
    let error = plan(&sections, "x").unwrap_err();
    assert!(
        matches!(error, VariableError::NoSuchVariable { .. }),
        "{error}"
    );
}

#[test]
fn names_that_overlap() {
    let mut dwarf = Dwarf::new();
    let kind = [(dw::NAME, dw::STRP), (dw::LOCATION, dw::EXPRLOC)];
    let kind = dwarf.kind(dw::VARIABLE, false, &kind);
    for at in 0..100_000_u32 {
        dwarf.entry(kind, &[&at.to_le_bytes(), AT]);
    }
    let (info, abbrev) = dwarf.finish();
    let strings = vec![b'a'; 200_000];
    let sections = [
        (".debug_info", &info[..]),
        (".debug_abbrev", &abbrev[..]),
        (".debug_str", &strings[..]),
    ];
    let error = plan(&sections, "x").unwrap_err();
    println!("{error}");
}

fn program() -> Option<Vec<u8>> {
    static PROGRAM: std::sync::OnceLock<Option<Vec<u8>>> = std::sync::OnceLock::new();
    let build = || {
        let folder = tempfile::TempDir::new().ok()?;
        let (from, to) = (folder.path().join("a.c"), folder.path().join("a"));
        std::fs::write(&from, include_str!("fixtures/variables.c")).ok()?;
        std::fs::write(folder.path().join("b.c"), include_str!("fixtures/hidden.c")).ok()?;
        let mut gcc = std::process::Command::new("gcc");
        let files = [&from, &folder.path().join("b.c")];
        let built = gcc.arg("-g").args(files).arg("-o").arg(&to).status().ok()?;
        built.success().then(|| std::fs::read(&to).ok())?
    };
    PROGRAM.get_or_init(build).clone()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn changed_anywhere(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40)) {
        let Some(mut bytes) = program() else { return Ok(()) };
        let start = bytes.len() / 3;
        for (at, value) in changes {
            let at = start + at.index(bytes.len() - start);
            bytes[at] = value;
        }
        let bytes = Content::from(bytes);
        let Ok(image) = Image::parse(&bytes, &NoDebugFiles) else { return Ok(()) };
        image.variables(&bytes, &NoDebugFiles, |variables| {
            for text in ["stats.hits", "table[3]->next->inner.b", "hidden->self->first", "mine", "statz"] {
                let plan = variables.plan(&Watch::parse(text).unwrap());
                let _ = plan.map(|plan| plan.value.describe(&[0; 8]));
            }
        });
    }
}

const START: u64 = 0x100;
const ATTRIBUTES: usize = 20_000;

/// Adds a function with one parameter, inlined in one place.
fn functions(mut dwarf: Dwarf) -> (Vec<u8>, Vec<u8>) {
    let parameter = dwarf.kind(dw::PARAMETER, false, &[(dw::TYPE, dw::REF4)]);
    let pointer = dwarf.kind(dw::POINTER, false, &[]);
    let function = dwarf.kind(dw::FUNCTION, true, &[(dw::LOW_PC, dw::ADDRESS)]);
    let inlined = dwarf.kind(dw::INLINED, false, &[(dw::ORIGIN, dw::REF4)]);
    let pointer = dwarf.entry(pointer, &[]);
    let start = dwarf.entry(function, &[&START.to_le_bytes()]);
    dwarf.entry(parameter, &[&pointer.to_le_bytes()]);
    dwarf.end();
    dwarf.entry(inlined, &[&start.to_le_bytes()]);
    dwarf.finish()
}

fn found(sections: &[(&str, &[u8])]) -> [Option<u32>; 2] {
    let file = Content::from(elf::elf(sections));
    let image = Image::parse(&file, &NoDebugFiles).unwrap();
    let parameters = image.parameter_registers(&file, &NoDebugFiles);
    let places = image.inlined_places(&file, &NoDebugFiles);
    [
        parameters.get(&START).map(|count| u32::from(*count)),
        // A count that is too low would be wrong.
        places.ok().map(|places| places[&START].count),
    ]
}

fn check(dwarf: Dwarf, more: (&str, &[u8]), wanted: [Option<u32>; 2]) {
    let (info, abbrev) = functions(dwarf);
    let sections = [(".debug_info", &info[..]), (".debug_abbrev", &abbrev), more];
    assert_eq!(found(&sections), wanted);
}

const NO_SECTION: (&str, &[u8]) = (".none", &[]);

#[test]
fn attributes_without_bytes_were_free() {
    for (entries, wanted) in [(1, Some(1)), (100, None)] {
        let mut dwarf = Dwarf::new();
        let flags = vec![(dw::NAME, dw::PRESENT); ATTRIBUTES];
        let empty = dwarf.kind(dw::VARIABLE, false, &flags);
        for _ in 0..entries {
            dwarf.entry(empty, &[]);
        }
        check(dwarf, NO_SECTION, [wanted; 2]);
    }
}

#[test]
fn empty_ranges_were_free() {
    let range = |begin: u64, end: u64| [begin.to_le_bytes(), end.to_le_bytes()].concat();
    let empty = range(1, 1).repeat(10_000);
    let ranges = [empty, range(0x200, 0x201), range(0, 0)].concat();
    for (functions, wanted) in [(1, Some(1)), (500, None)] {
        let mut dwarf = Dwarf::new();
        let function = dwarf.kind(dw::FUNCTION, false, &[(dw::RANGES, dw::OFFSET)]);
        for _ in 0..functions {
            dwarf.entry(function, &[&[0; 4]]);
        }
        check(dwarf, (".debug_ranges", &ranges), [wanted; 2]);
    }
}

#[test]
fn long_names_of_types_were_free() {
    for (parameters, wanted) in [(1, Some(1)), (2_000, None)] {
        let mut dwarf = Dwarf::new();
        let function = dwarf.kind(dw::FUNCTION, true, &[(dw::LOW_PC, dw::ADDRESS)]);
        let parameter = dwarf.kind(dw::PARAMETER, false, &[(dw::TYPE, dw::REF4)]);
        let pointer = dwarf.kind(dw::POINTER, false, &[(dw::NAME, dw::STRING)]);
        let pointer = dwarf.entry(pointer, &[&[b'a'; 1 << 15], &[0]]);
        dwarf.entry(function, &[&0x200_u64.to_le_bytes()]);
        for _ in 0..parameters {
            dwarf.entry(parameter, &[&pointer.to_le_bytes()]);
        }
        dwarf.end();
        // Inlined places are found without any type.
        check(dwarf, NO_SECTION, [wanted, Some(1)]);
    }
}

/// Adds `count` units before that of [`functions`], each with one entry that has [`ATTRIBUTES`] attributes.
fn after_units(count: usize, mut dwarf: Dwarf) -> (Vec<u8>, Vec<u8>) {
    let flags = vec![(0x3f, dw::PRESENT); ATTRIBUTES];
    let code = dwarf.kind(dw::COMPILE_UNIT, false, &flags);
    let (info, abbrev) = functions(dwarf);
    let unit = [8, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8, code];
    ([unit.repeat(count), info].concat(), abbrev)
}

#[test]
fn first_entries_were_free() {
    for (units, wanted) in [(1, Some(1)), (40, None)] {
        let (info, abbrev) = after_units(units, Dwarf::new());
        let sections = [(".debug_info", &info[..]), (".debug_abbrev", &abbrev)];
        assert_eq!(found(&sections), [wanted; 2], "{units} units");
    }
}

/// Regression: line tables were read without a limit, and a damaged line table hid its unit.
#[test]
fn line_tables_were_read_for_functions() {
    let dwarf = Dwarf::with_root(&[(dw::LINES, dw::OFFSET)], &[0; 4]);
    check(dwarf, (".debug_line", &[0xff; 64]), [Some(1); 2]);
}

#[test]
fn tables_of_abbreviations_had_no_limit() {
    let (info, mut abbrev) = functions(Dwarf::new());
    abbrev.resize(33 << 20, 0);
    let sections = [(".debug_info", &info[..]), (".debug_abbrev", &abbrev)];
    assert_eq!(found(&sections), [None; 2]);
}

#[test]
fn an_exceeded_budget_hid_units_for_good() {
    let mut dwarf = Dwarf::with_root(&vec![(0x3f, dw::PRESENT); ATTRIBUTES], &[]);
    let variable = variable(&mut dwarf);
    let kind = dwarf.kind(0x24, false, &[(dw::SIZE, dw::DATA1)]);
    let kind = dwarf.entry(kind, &[&[4]]);
    dwarf.entry(variable, &[b"x\0", &kind.to_le_bytes(), AT]);
    // A unit's first entry uses the budget twice, when it is read and when the unit is searched. So the first
    // request's budget suffices for the earlier units, but not for the variable's unit.
    let (info, abbrev) = after_units(26, dwarf);
    let file = Content::from(elf::elf(&[
        (".debug_info", &info),
        (".debug_abbrev", &abbrev),
    ]));
    let image = Image::parse(&file, &NoDebugFiles).unwrap();
    let watch = Watch::parse("x").unwrap();
    image.variables(&file, &NoDebugFiles, |variables| {
        let first = variables.plan(&watch).unwrap_err();
        assert!(matches!(first, VariableError::Damaged { .. }), "{first}");
        assert!(variables.plan(&watch).is_ok());
    });
}
