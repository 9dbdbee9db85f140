//! Notes where the compiler inlined a function, because a probe of the function misses these places.

use tiptoe_event::spec::{Function as FunctionSpec, Spec};
use tiptoe_session::{EventNote, Note};
use tiptoe_symbol::{Function, InlinedPlaces};

use super::spec_word;
use crate::error::InsteadOfFunction;
use crate::module::Module;

/// Returns a note that some calls were inlined and are not counted, or that this is unknown. A glob matches too many
/// functions for such notes.
pub(super) fn note(spec: &Spec, module: &Module, function: &Function) -> Option<Note> {
    if !matches!(spec.function, FunctionSpec::Name(_)) || spec.offset != 0 {
        return None;
    }
    let Ok(found) = module.object.inlined_places(function, module.is_program) else {
        return Some(EventNote::InlinedUnknown.into());
    };
    let found = found?;
    let (places, within) = (u64::from(found.count), names(module, found));
    Some(EventNote::Inlined { places, within }.into())
}

/// Returns the functions that contain the calls of a function without code of its own.
pub(super) fn everywhere(spec: &Spec, module: &Module) -> Option<InsteadOfFunction> {
    let FunctionSpec::Name(name) = spec.function else {
        return None;
    };
    let found = module.object.inlined_everywhere(name, module.is_program)?;
    let word = |name: &String| match module.is_program {
        true => format!("`{name}`"),
        false => spec_word(&module.name, name),
    };
    Some(InsteadOfFunction::Inlined {
        name: name.to_owned(),
        within: names(module, &found).iter().map(word).collect(),
    })
}

fn names(module: &Module, places: &InlinedPlaces) -> Vec<String> {
    let functions = places.within.iter();
    let functions = functions.filter_map(|at| module.object.image.function_containing(*at));
    functions.map(|it| it.display_name().into_owned()).collect()
}
