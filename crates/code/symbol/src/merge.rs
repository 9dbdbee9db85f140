//! Merges the functions of several tables. Unwind information adds nameless functions, and missing sizes.

use crate::frames::Frame;
use crate::function::{Function, Kind, Source, is_cold_name};
use crate::layout::Layout;
use crate::tables::Symbol;

const MAX_FRAMES: usize = 1_000_000;

pub(crate) fn merge(
    mut symbols: Vec<(Source, Symbol<'_>)>,
    frames: &[Frame],
    layout: &Layout,
    file_size: u64,
) -> Vec<Function> {
    let builder = FunctionBuilder { layout, file_size };
    symbols.sort_by_key(|(source, symbol)| (symbol.address, *source));
    let mut functions: Vec<Function> = symbols
        .chunk_by(|(_, one), (_, other)| one.address == other.address)
        .filter_map(|aliases| builder.named(aliases))
        .collect();
    add_nameless(&mut functions, frames, &builder);
    mark_signal_trampolines(&mut functions, frames);
    mark_rules(&mut functions, frames);
    functions
}

struct FunctionBuilder<'l> {
    layout: &'l Layout,
    file_size: u64,
}

impl FunctionBuilder<'_> {
    fn function(&self, address: u64, size: u64, source: Source) -> Option<Function> {
        let mut function = self.layout.function(address, source)?;
        let segment = self.layout.executable_segment(address)?;
        function.size = size.min(segment.file_end() - address);
        (function.offset_in_file < self.file_size).then_some(function)
    }

    fn named(&self, aliases: &[(Source, Symbol<'_>)]) -> Option<Function> {
        let (source, first) = aliases.first()?;
        let size = aliases
            .iter()
            .map(|(_, symbol)| symbol.size)
            .max()
            .unwrap_or(0);
        let mut function = self.function(first.address, size, *source)?;
        function.is_ifunc = aliases.iter().any(|(_, symbol)| symbol.is_ifunc);
        function.names = names(aliases);
        function.is_cold = function
            .names
            .first()
            .is_some_and(|name| is_cold_name(name));
        Some(function)
    }

    fn nameless(&self, frame: &Frame) -> Option<Function> {
        let mut function = self.function(frame.address, frame.size, Source::EhFrame)?;
        function.is_cold =
            frame.is_inside_function && !frame.is_signal_trampoline && function.kind == Kind::Plain;
        Some(function)
    }
}

/// Returns the names, the best to show first: whole before cold, global before local, few leading underscores before
/// many, short before long.
fn names(aliases: &[(Source, Symbol<'_>)]) -> Vec<Box<str>> {
    let underscores = |name: &str| name.len() - name.trim_start_matches('_').len();
    let rank = |name: &str, local| (is_cold_name(name), local, underscores(name), name.len());
    let named = aliases
        .iter()
        .filter_map(|(_, symbol)| Some((symbol.name?, symbol.is_local)));
    let mut ranked: Vec<_> = named
        .map(|(name, local)| (name, rank(name, local)))
        .collect();
    ranked.sort_unstable();
    ranked.dedup_by_key(|(name, _)| *name);
    ranked.sort_by_key(|&(_, rank)| rank);
    ranked
        .into_iter()
        .map(|(name, _)| Box::from(name))
        .collect()
}

fn add_nameless(functions: &mut Vec<Function>, frames: &[Frame], builder: &FunctionBuilder<'_>) {
    let mut frames: Vec<&Frame> = frames.iter().filter(|frame| frame.size > 0).collect();
    frames.sort_by_key(|frame| frame.address);
    frames.dedup_by_key(|frame| frame.address);
    let mut nameless = Vec::new();
    for frame in frames.into_iter().take(MAX_FRAMES) {
        match functions.binary_search_by_key(&frame.address, |f| f.address) {
            Ok(at) if functions[at].size == 0 => functions[at].size = frame.size,
            Ok(_) => {}
            Err(next) if frame.is_signal_trampoline && starts_early(frame, functions.get(next)) => {
            }
            Err(_) => nameless.extend(builder.nameless(frame)),
        }
    }
    functions.append(&mut nameless);
    functions.sort_by_key(|function| function.address);
}

fn mark_rules(functions: &mut [Function], frames: &[Frame]) {
    for frame in frames.iter().filter(|f| f.is_unwinder || f.is_outermost) {
        if let Ok(at) = functions.binary_search_by_key(&frame.address, |f| f.address) {
            functions[at].is_unwinder = frame.is_unwinder;
            functions[at].is_outermost = frame.is_outermost;
        }
    }
}

/// Returns whether a description begins a byte before its code. A signal trampoline's description does, because
/// unwinders look up the byte before a return address.
fn starts_early(frame: &Frame, next: Option<&Function>) -> bool {
    next.is_some_and(|function| function.address == frame.address.saturating_add(1))
}

fn mark_signal_trampolines(functions: &mut [Function], frames: &[Frame]) {
    for frame in frames.iter().filter(|frame| frame.is_signal_trampoline) {
        let start = functions.partition_point(|f| f.address < frame.address);
        let end = frame.address.saturating_add(frame.size);
        let covered = functions[start..]
            .iter_mut()
            .take_while(|f| f.address < end);
        covered.for_each(|function| function.kind = Kind::SignalReturn);
    }
}
