//! Compares tables of real programs with gimli's rows.

#[path = "../../../../tests/support/skipped.rs"]
mod skipped;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, LittleEndian, RegisterRule, UnwindContext,
    UnwindSection as _, X86_64,
};
use object::{Object as _, ObjectSection as _};
use skipped::skipped;
use tiptoe_stack::compile::{Section, Table};
use tiptoe_stack::{Base, Rule};

const FILES: [&str; 6] = [
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/lib64/ld-linux-x86-64.so.2",
    "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
    "/usr/bin/python3",
    "/usr/bin/redis-server",
];

struct File {
    eh_frame: (u64, Vec<u8>),
    index: (u64, Vec<u8>),
}

fn files() -> impl Iterator<Item = (&'static str, File)> {
    FILES.into_iter().filter_map(|path| {
        let Ok(bytes) = std::fs::read(path) else {
            skipped(path, "it is not there");
            return None;
        };
        let file = object::File::parse(&*bytes).expect("an ELF file");
        let section = |name| {
            let section = file.section_by_name(name).expect("it can be unwound");
            let data = section.uncompressed_data().expect("it can be read");
            (section.address(), data.into_owned())
        };
        let (eh_frame, index) = (section(".eh_frame"), section(".eh_frame_hdr"));
        Some((path, File { eh_frame, index }))
    })
}

fn compile(file: &File) -> Table {
    Table::compile(&Section {
        bytes: &file.eh_frame.1,
        address: file.eh_frame.0,
        word: 8,
        x86_64: true,
    })
}

/// Returns `None` if no rule can express the row.
fn expected(row: &gimli::UnwindTableRow<usize>) -> Option<Rule> {
    let (base, offset) = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } if *register == X86_64::RSP => {
            (Base::Sp, *offset)
        }
        CfaRule::RegisterAndOffset { register, offset } if *register == X86_64::RBP => {
            (Base::Bp, *offset)
        }
        _ => return None,
    };
    let saved = match row.register(X86_64::RBP) {
        Some(RegisterRule::Offset(at)) => Some(-at as u32),
        None | Some(RegisterRule::Undefined) => None,
        Some(_) => return None,
    };
    match row.register(X86_64::RA) {
        Some(RegisterRule::Undefined) => Some(Rule::OUTERMOST),
        Some(RegisterRule::Offset(-8)) => Rule::new(base, offset as u32, saved),
        _ => None,
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes: whole libraries")]
fn every_row_agrees_with_gimli() {
    for (path, file) in files() {
        let table = compile(&file);
        let eh_frame = EhFrame::new(&file.eh_frame.1, LittleEndian);
        let index = EhFrameHdr::new(&file.index.1, LittleEndian);
        let bases = BaseAddresses::default()
            .set_eh_frame(file.eh_frame.0)
            .set_eh_frame_hdr(file.index.0);
        let index = index.parse(&bases, 8).expect("an index");
        let functions = index.table().expect("it is sorted");
        let (mut compared, mut beyond) = (0, 0);
        let mut context = UnwindContext::new();
        let mut entries = functions.iter(&bases);
        while let Some((start, _)) = entries.next().expect("it can be read") {
            let start = start.direct().expect("an address");
            let fde = functions
                .fde_for_address(&eh_frame, &bases, start, EhFrame::cie_from_offset)
                .expect("it is described");
            let mut rows = fde.rows(&eh_frame, &bases, &mut context).expect("rows");
            while let Some(row) = rows.next_row().expect("a row") {
                let [first, last] = [row.start_address(), row.end_address() - 1];
                if first > last {
                    continue;
                }
                match expected(row) {
                    Some(rule) => {
                        for at in [first, last] {
                            assert_eq!(table.rule(at), rule, "{path}: {at:#x}, {row:?}");
                        }
                        compared += 1;
                    }
                    None if matches!(row.cfa(), CfaRule::Expression(_)) => {
                        // The table has rules for both parts of a linkage table's entry, or for neither.
                        let none = table.rule(first) == Rule::UNKNOWN;
                        let (at, after) = (table.rule(first | 10), table.rule(first | 11));
                        let entry = [8, 16].map(|cfa| Rule::new(Base::Sp, cfa, None).unwrap());
                        assert!(none || [at, after] == entry, "{path}: {first:#x}");
                        beyond += usize::from(none);
                    }
                    None => {
                        assert_eq!(table.rule(first), Rule::UNKNOWN, "{path}: {first:#x}");
                        beyond += 1;
                    }
                }
            }
        }
        println!("{path}: {compared} rows alike, {beyond} beyond a rule");
        assert!(
            compared > 1000 && beyond * 20 < compared,
            "{path}: {compared}, {beyond}"
        );
    }
}
