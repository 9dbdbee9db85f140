//! Hooks functions that unwind the stack, look for their caller, or end calls without a return. Such functions must
//! be hooked because the stack may contain return addresses into tiptoe's generated code.

use tiptoe_patch::{Body, shape};
use tiptoe_symbol::Function;
use tiptoe_wire::calls::intercepted;
use tiptoe_wire::{Site, SiteFlags};

use super::{Draft, PatchPlan, PlannedSite, body_hash, planned};
use crate::module::Module;

/// Functions whose hooks stay after the session if calls are followed, and the numbers by which the agent (tiptoe's
/// library) knows the functions.
const LASTING: &[(&str, u32)] = &[
    ("_dl_find_object", intercepted::FIND_OBJECT),
    ("dl_iterate_phdr", intercepted::ITERATE),
    ("dlsym", intercepted::LOOKER),
    ("dlvsym", intercepted::LOOKER),
    ("dlopen", intercepted::LOOKER),
    ("dlmopen", intercepted::LOOKER),
    ("_Unwind_Backtrace", intercepted::BACKTRACE),
    ("_Unwind_ForcedUnwind", intercepted::FORCED),
];
/// Functions that end calls without a return. Only `--under F` needs their hooks, to see when calls of `F` end.
const LEAVING: &[(&str, u32)] = &[
    ("longjmp", intercepted::JUMP),
    ("__longjmp_chk", intercepted::JUMP),
    ("_Unwind_SetIP", intercepted::LAND),
];

pub fn is_intercepted(name: &str) -> bool {
    LASTING.iter().any(|(known, _)| *known == name)
}

impl Draft<'_> {
    pub(super) fn interceptions(
        &mut self,
        modules: &[Module],
        follows: bool,
        plan: &mut PatchPlan,
    ) {
        let leaving = if self.state.hits.under { LEAVING } else { &[] };
        for module in modules {
            for function in module.object.image.functions() {
                let mut all = LASTING.iter().chain(leaving);
                let is_its = |name: &str| function.names.iter().any(|own| **own == *name);
                let Some((_, what)) = all.find(|(name, _)| is_its(name)) else {
                    continue;
                };
                if *what == intercepted::LOOKER && !follows {
                    continue;
                }
                let stay = follows && *what < intercepted::JUMP;
                if let Some(what) = numbered(*what, module, plan) {
                    let body = Body::Intercept { what, stay };
                    let planned = self.interception(module, function, &body);
                    plan.hooks.extend(planned);
                }
            }
        }
    }

    /// Plans the hook of a function, or reuses its site (patched place) of an earlier session.
    pub(super) fn interception(
        &mut self,
        module: &Module,
        function: &Function,
        body: &Body,
    ) -> Option<PlannedSite> {
        let code = module.object.code(function, module.bias)?;
        let shape = shape(&code, 0).ok()?;
        let stays = |known: &Site| known.flags.has(SiteFlags::STAYS);
        let same = |known: &Site| known.body == body_hash(body);
        let known = self.reusable(&shape, stays);
        if let Some(known) = known.or_else(|| self.reusable(&shape, same)) {
            return Some(known);
        }
        let patch = self.planner.plan(&shape, body, Vec::new).ok()?;
        Some(planned(patch, 0, body))
    }
}

/// Returns the agent's number for an intercepted function. For an unwinder, also adds to the plan the function of the
/// same module that the agent calls; returns `None` if the module has no such function.
fn numbered(what: u32, module: &Module, plan: &mut PatchPlan) -> Option<u32> {
    let callee = match what {
        intercepted::BACKTRACE | intercepted::FORCED => "_Unwind_GetIP",
        intercepted::LAND => "_Unwind_GetCFA",
        _ => return Some(what),
    };
    let found = *module.object.image.with_symbol(callee).first()?;
    plan.unwinders.push(found.address.wrapping_add(module.bias));
    Some(what + plan.unwinders.len() as u32 - 1)
}
