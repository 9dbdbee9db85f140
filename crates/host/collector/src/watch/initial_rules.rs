//! Supplies the BPF program with facts before the first hit: the stores whose instructions contain a variable's
//! address, and the unwind rules at the direct calls that lead to these stores.

use std::collections::HashSet;

use tiptoe_kernel::Watchpoints;

use super::begin::Target;
use super::learned_code::LearnedCode;
use super::variables::WatchedVariable;
use crate::error::Error;
use crate::module::Module;

/// The lengths of an address in an instruction, and of an immediate value after the address.
const ADDRESS: usize = 4;
const IMMEDIATE_LENGTHS: [usize; 4] = [0, 1, 2, 4];
const CALL: u8 = 0xe8;
const CALL_LEN: usize = 1 + ADDRESS;
/// The most levels of callers.
const DEEPEST: usize = 8;
const MOST: usize = 4_000;

pub(super) fn supply(
    learned: &mut LearnedCode,
    set: &mut Watchpoints,
    target: &Target,
    variables: &[WatchedVariable],
) -> Result<(), Error> {
    for module in &target.names.modules {
        let mut functions = HashSet::new();
        for (start, code) in module.object.code_sections() {
            let start = start.wrapping_add(module.bias);
            for variable in variables {
                for end in naming(variable.address, start, code) {
                    if learned.add_store(set, module, end)? {
                        learned.add_rule_in(set, module, end, 0)?;
                        functions.extend(function(module, end - 1));
                    }
                }
            }
        }
        for variable in variables {
            let at = variable.address;
            let is_here = module.text.iter().any(|text| text.contains(&at));
            if variable.is_code() && is_here {
                learned.add_rule_in(set, module, at, 0)?;
                functions.extend(function(module, at));
            }
        }
        supply_callers(learned, set, module, functions)?;
    }
    Ok(())
}

/// Supplies the unwind rules at the calls of these functions, of their callers, and so on.
fn supply_callers(
    learned: &mut LearnedCode,
    set: &mut Watchpoints,
    module: &Module,
    mut functions: HashSet<u64>,
) -> Result<(), Error> {
    if functions.is_empty() {
        return Ok(());
    }
    let sections = module.object.code_sections();
    let mut calls: Vec<(u64, u64)> = sections
        .flat_map(|(start, code)| calls(start.wrapping_add(module.bias), code))
        .collect();
    calls.sort_unstable();
    let mut seen = functions.clone();
    for _ in 0..DEEPEST {
        let mut callers = HashSet::new();
        for called in functions {
            let first = calls.partition_point(|(to, _)| *to < called);
            let to_it = calls[first..].iter().take_while(|(to, _)| *to == called);
            for (_, back) in to_it {
                if learned.rules.len() >= MOST {
                    return Ok(());
                }
                learned.add_rule_in(set, module, *back, 1)?;
                let caller = function(module, back - 1);
                callers.extend(caller.filter(|caller| seen.insert(*caller)));
            }
        }
        functions = callers;
    }
    Ok(())
}

fn function(module: &Module, address: u64) -> Option<u64> {
    let linked = address.wrapping_sub(module.bias);
    let function = module.object.image.function_containing(linked)?;
    Some(function.address.wrapping_add(module.bias))
}

/// Returns the target and the return address of all bytes that look like a direct call.
fn calls(start: u64, code: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let within = start..start + code.len() as u64;
    let windows = code.windows(CALL_LEN).enumerate();
    windows.filter_map(move |(at, bytes)| {
        let relative = i32::from_le_bytes(bytes[1..].try_into().ok()?);
        let back = start + (at + CALL_LEN) as u64;
        let to = back.wrapping_add_signed(relative.into());
        (bytes[0] == CALL && within.contains(&to)).then_some((to, back))
    })
}

/// Returns the ends of possible instructions whose operand is this address, encoded as a distance from the
/// instruction's end.
fn naming(address: u64, start: u64, code: &[u8]) -> Vec<u64> {
    let mut found = Vec::new();
    for (at, bytes) in code.windows(ADDRESS).enumerate() {
        let relative = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        for immediate in IMMEDIATE_LENGTHS {
            let end = start.wrapping_add((at + ADDRESS + immediate) as u64);
            if end.wrapping_add_signed(relative.into()) == address {
                found.push(end);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_that_name_an_address() {
        // movq $5,0x100(%rip); nop; mov %rax,0xf8(%rip)
        let code = [
            0x48, 0xc7, 0x05, 0, 1, 0, 0, 5, 0, 0, 0, 0x90, 0x48, 0x89, 0x05, 0xf8, 0, 0, 0,
        ];
        let start = 0x40_1000;
        assert_eq!(
            naming(start + 11 + 0x100, start, &code),
            [start + 11, start + 19]
        );
        assert_eq!(naming(start, start, &code), [] as [u64; 0]);
    }

    #[test]
    fn calls_within_the_code() {
        // nop; call .+5; call to 1 MB further; ret
        let code = [0x90, 0xe8, 0, 0, 0, 0, 0xe8, 0, 0, 0x10, 0, 0xc3];
        let found: Vec<(u64, u64)> = calls(0x1000, &code).collect();
        assert_eq!(found, [(0x1006, 0x1006)]);
    }
}
