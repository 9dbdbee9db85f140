//! The assembly of the benched functions, and of the loops that call them.

use std::fmt::Write;

/// One kind of function, and how many of it are called in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    /// Its name in questions and rows; its functions are `NAME_0`, `NAME_1`, …
    pub name: &'static str,
    /// How many distinct functions a round calls.
    pub functions: usize,
    body: &'static str,
    /// Functions lie on this alignment; 1 leaves no padding for a jump.
    align: usize,
}

const fn site(name: &'static str, functions: usize, body: &'static str, align: usize) -> Site {
    Site {
        name,
        functions,
        body,
        align,
    }
}

const PUSH: &str = "push %rbp; mov %rsp, %rbp; pop %rbp; ret";

/// Every first instruction that the bench knows, each in a loop of its own.
pub(crate) const KINDS: [Site; 6] = [
    site("push", 1, PUSH, 16),
    site("endbr64", 1, "endbr64; lea 1(%rdi), %eax; ret", 16),
    site("mov", 1, "mov %edi, %eax; add $1, %eax; ret", 16),
    site("nop5", 1, ".byte 0x0f, 0x1f, 0x44, 0, 0; ret", 16),
    site("nops", 1, "nop; nop; nop; nop; nop; ret", 16),
    site("ret", 1, "ret", 16),
];

/// A one-byte function between others: nothing but a trap fits.
pub(crate) const TRAP: Site = site("trap", 1, "ret", 1);

/// Many distinct functions, called in turn: branch targets and caches are the cost there.
pub(crate) const MANY: [Site; 3] = [
    site("push256", 256, PUSH, 16),
    site("push1024", 1024, PUSH, 16),
    site("push4096", 4096, PUSH, 16),
];

/// What other tools would do at their cheapest: one counter that all threads share.
pub(crate) const SHARED: Site = site("shared", 1, "lock incq shared_counter(%rip); ret", 16);

/// The functions that an attach patches.
pub(crate) const ATTACH: [Site; 2] = [site("few", 1_000, PUSH, 16), site("lots", 10_000, PUSH, 16)];

/// `sites.h`: the list that the C part expands.
pub(crate) fn header(sites: &[Site]) -> String {
    sites
        .iter()
        .map(|site| format!("SITE({}, {})\n", site.name, site.functions))
        .collect()
}

/// `sites.S`: functions and loops.
pub(crate) fn assembly(sites: &[Site]) -> String {
    let mut text = String::from("        .text\n");
    for site in sites {
        functions(&mut text, site);
        loops(&mut text, site);
    }
    text.push_str("        .bss\n        .p2align 6\nshared_counter: .skip 64\n");
    text.push_str("        .section .note.GNU-stack, \"\", @progbits\n");
    text
}

/// The functions, and `first_NAME` and `second_NAME`, from which the C part knows where they lie.
fn functions(text: &mut String, site: &Site) {
    let Site {
        name, body, align, ..
    } = site;
    text.push_str("        .p2align 6\n");
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

/// `run0_NAME` calls each function once a round; `run5_NAME` does so through five callers.
fn loops(text: &mut String, site: &Site) {
    let name = site.name;
    let direct: Vec<String> = (0..site.functions)
        .map(|index| format!("{name}_{index}"))
        .collect();
    run(text, &format!("run0_{name}"), &direct);
    // One chain of callers is enough: the last one calls every function.
    let chain: Vec<String> = (1..=5)
        .map(|level| format!("caller{level}_{name}"))
        .collect();
    run(text, &format!("run5_{name}"), &chain[..1]);
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

/// A loop over `rounds` (in rdi) that calls `callees` with the argument 7.
fn run(text: &mut String, name: &str, callees: &[String]) {
    put(
        text,
        format_args!("        .globl {name}\n        .type {name}, @function\n        .p2align 6"),
    );
    put(
        text,
        format_args!("{name}: push %rbx; mov %rdi, %rbx; mov $7, %edi\n        .p2align 5\n1:"),
    );
    for callee in callees {
        put(text, format_args!("        call {callee}"));
    }
    text.push_str("        dec %rbx\n        jnz 1b\n        pop %rbx\n        ret\n");
}

fn put(text: &mut String, line: std::fmt::Arguments) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{line}");
}
