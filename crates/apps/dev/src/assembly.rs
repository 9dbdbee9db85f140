//! Generates the assembly of the benched functions, and of the loops that call them. A *site* is a set of functions
//! with the same code.

use std::fmt::Write;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub name: &'static str,
    pub functions: usize,
    /// The number of copies of the functions and loops, each at another offset in a cache line.
    pub places: usize,
    body: &'static str,
    /// The functions' alignment. With 1, no padding follows a function, so a tracer's jump does not fit.
    align: usize,
}

impl Site {
    const fn new(name: &'static str, functions: usize, body: &'static str) -> Site {
        Site {
            name,
            functions,
            places: if functions == 1 { PLACES } else { 1 },
            body,
            align: 16,
        }
    }

    pub(crate) fn names(self) -> impl Iterator<Item = String> {
        (0..self.places).map(move |place| format!("{}_at{place}", self.name))
    }
}

/// Times are means over this number of offsets, because a short loop's offset changes a round's time by up to 1 ns.
const PLACES: usize = 4;

const PUSH: &str = "push %rbp; mov %rsp, %rbp; pop %rbp; ret";

/// `PUSH` with the cheapest detour.
const DETOUR: &str = "jmp 9f; 8: ret; .pushsection .text.detours; .balign 16; \
                      9: push %rbp; mov %rsp, %rbp; pop %rbp; jmp 8b; .popsection";

/// `PUSH` with the cheapest return probe: the detour moves the return address to a variable, and calls the copy.
const BARE_RETURN: &str = "jmp 9f; 8: ret; .pushsection .text.detours; .balign 16; \
                           9: popq 7f(%rip); call 6f; pushq 7f(%rip); ret; \
                           6: push %rbp; mov %rsp, %rbp; pop %rbp; jmp 8b; .popsection; \
                           .pushsection .bss.returns; 7: .skip 8; .popsection";

/// One function for each kind of first instruction.
pub(crate) const KINDS: [Site; 6] = [
    Site::new("push", 1, PUSH),
    Site::new("endbr64", 1, "endbr64; lea 1(%rdi), %eax; ret"),
    Site::new("mov", 1, "mov %edi, %eax; add $1, %eax; ret"),
    Site::new("nop5", 1, ".byte 0x0f, 0x1f, 0x44, 0, 0; ret"),
    Site::new("nops", 1, "nop; nop; nop; nop; nop; ret"),
    Site::new("ret", 1, "ret"),
];

/// A function of one byte between other code, so that only a trap fits.
pub(crate) const TRAP: Site = Site {
    align: 1,
    places: 1,
    ..Site::new("trap", 1, "ret")
};

/// Many functions, called in turn, so that misses in caches and branch predictors dominate their cost.
pub(crate) const MANY: [Site; 3] = [
    Site::new("push256", 256, PUSH),
    Site::new("push1024", 1024, PUSH),
    Site::new("push4096", 4096, PUSH),
];

pub(crate) const DETOURS: [Site; 4] = [
    Site::new("detour", 1, DETOUR),
    Site::new("detour256", 256, DETOUR),
    Site::new("detour1024", 1024, DETOUR),
    Site::new("detour4096", 4096, DETOUR),
];

pub(crate) const BARE_RETURNS: [Site; 2] = [
    Site::new("bare_return", 1, BARE_RETURN),
    Site::new("bare_return256", 256, BARE_RETURN),
];

/// A function with the cheapest trap.
pub(crate) const OWN_TRAP: Site = Site {
    places: 1,
    ..Site::new("own_trap", 1, "int3; ret")
};

pub(crate) const READS: usize = 16;

pub(crate) const READINGS: Site = Site::new("readings", 1, ".rept 16; rdtsc; .endr; ret");

pub(crate) const SHARED: Site = Site::new("shared", 1, "lock incq shared_counter(%rip); ret");

/// A function with the prologue for `-pg`, which some tracers need.
pub(crate) const MCOUNT: Site = Site::new(
    "mcount",
    1,
    "push %rbp; mov %rsp, %rbp; call *mcount@GOTPCREL(%rip); pop %rbp; ret",
);

pub(crate) const ATTACH: [Site; 2] = [
    Site::new("few", 1_000, PUSH),
    Site::new("lots", 10_000, PUSH),
];

pub(crate) fn header(sites: &[Site]) -> String {
    let placed = sites
        .iter()
        .flat_map(|site| site.names().map(|name| (name, site.functions)));
    placed
        .map(|(name, functions)| format!("SITE({name}, {functions})\n"))
        .collect()
}

pub(crate) fn assembly(sites: &[Site]) -> String {
    let mut text = String::from("        .text\n");
    for site in sites {
        for (place, name) in site.names().enumerate() {
            functions(&mut text, site, &name, place * 64 / PLACES);
            loops(&mut text, site, &name, place * 64 / PLACES);
        }
    }
    text.push_str("        .bss\n        .p2align 6\nshared_counter: .skip 64\n");
    text.push_str("        .section .note.GNU-stack, \"\", @progbits\n");
    text
}

/// Writes the functions, and two labels from which target.c computes their addresses.
fn functions(text: &mut String, site: &Site, name: &str, place: usize) {
    let Site { body, align, .. } = site;
    put(
        text,
        format_args!("        .p2align 6\n        .skip {place}"),
    );
    if *align == 1 {
        text.push_str("        .rept 8\n        xor %eax, %eax\n        .endr\n");
    }
    put(
        text,
        format_args!("        .globl first_{name}, second_{name}"),
    );
    put(text, format_args!("first_{name}:"));
    for index in 0..site.functions {
        put(text, format_args!("        .balign {align}"));
        put(
            text,
            format_args!("        .type {name}_{index}, @function"),
        );
        put(
            text,
            format_args!("{name}_{index}: .cfi_startproc; {body}; .cfi_endproc"),
        );
        put(
            text,
            format_args!("        .size {name}_{index}, . - {name}_{index}"),
        );
        if index == 0 {
            put(
                text,
                format_args!("        .balign {align}\nsecond_{name}:"),
            );
        }
    }
    if *align == 1 {
        text.push_str("        .rept 8\n        xor %eax, %eax\n        .endr\n");
    }
}

/// Writes `run0_NAME`, which calls each function once a round, and `run5_NAME`, which calls them through five callers.
fn loops(text: &mut String, site: &Site, name: &str, place: usize) {
    let direct: Vec<String> = (0..site.functions)
        .map(|index| format!("{name}_{index}"))
        .collect();
    run(text, &format!("run0_{name}"), place, &direct);
    let chain: Vec<String> = (1..=5)
        .map(|level| format!("caller{level}_{name}"))
        .collect();
    run(text, &format!("run5_{name}"), place, &chain[..1]);
    for (level, caller) in chain.iter().enumerate() {
        put(
            text,
            format_args!("        .p2align 4\n{caller}: sub $8, %rsp"),
        );
        let callees = chain
            .get(level + 1)
            .map_or(direct.as_slice(), std::slice::from_ref);
        for callee in callees {
            put(text, format_args!("        call {callee}"));
        }
        text.push_str("        add $8, %rsp\n        ret\n");
    }
}

/// Writes a loop over `rounds` (in rdi) that calls `callees` with the argument 7.
fn run(text: &mut String, name: &str, place: usize, callees: &[String]) {
    put(
        text,
        format_args!("        .globl {name}\n        .type {name}, @function\n        .p2align 6"),
    );
    put(
        text,
        format_args!(
            "{name}: push %rbx; mov %rdi, %rbx; mov $7, %edi; .p2align 6; .skip {place}, 0x90\n1:"
        ),
    );
    for callee in callees {
        put(text, format_args!("        call {callee}"));
    }
    text.push_str("        dec %rbx\n        jnz 1b\n        pop %rbx\n        ret\n");
}

fn put(text: &mut String, line: std::fmt::Arguments) {
    let _ = writeln!(text, "{line}");
}
