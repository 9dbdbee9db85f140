//! Names waits for C++20 atomics that are no futexes (`std::atomic<long>`, `atomic_flag`, `std::barrier`). For these,
//! libstdc++ waits on a word of a table, chosen by a hash of the atomic's address.
//!
//! Several atomics may share a word, so the atomic is identified by the first argument of the user's call. If the
//! argument is no constant, the user's function is named.

use tiptoe_patch::first_argument;

use super::Names;

const TABLE: &str = "_ZZNSt8__detail18__waiter_pool_base6_S_forEPKvE3__w";

impl Names {
    /// `None` if `site` does not wait on the table.
    pub(super) fn atomic(&self, waited_at: u64, site: u64) -> Option<String> {
        let module = self.module_of(waited_at)?;
        let linked = waited_at.wrapping_sub(module.bias);
        let (name, _) = module.object.image.variable_at(linked)?;
        if name != TABLE {
            return None;
        }
        let (module, function) = self.function(site.wrapping_sub(1))?;
        let code = module.object.code(function, module.bias);
        let object = code.and_then(|code| first_argument(&code, site));
        let variable = object.and_then(|object| self.variable(object, |offset| offset));
        let place = || format!("std::atomic in {}:{}", module.name, function.display_name());
        Some(variable.unwrap_or_else(place))
    }
}
