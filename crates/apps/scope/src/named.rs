use std::collections::HashMap;
use std::string::String;
use std::sync::{LazyLock, PoisonError, RwLock};

use crate::Scope;

static NAMED: LazyLock<RwLock<HashMap<&'static str, &'static Scope>>> =
    LazyLock::new(RwLock::default);

impl Scope {
    /// Returns the scope of this name, created at the first call and never freed. Names should be few, because
    /// tiptoe reports about a thousand scopes and merges all others.
    ///
    /// ```
    /// use tiptoe_scope::Scope;
    /// let tenant = Scope::named(&format!("tenant-{}", 7));
    /// assert!(std::ptr::eq(tenant, Scope::named("tenant-7")));
    /// let _in = tenant.enter();
    /// ```
    pub fn named(name: &str) -> &'static Scope {
        // A poisoned lock can be used, because no panic leaves the map inconsistent.
        let known = NAMED.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(scope) = known.get(name) {
            return scope;
        }
        drop(known);
        let mut known = NAMED.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(scope) = known.get(name) {
            return scope;
        }
        let name: &'static str = String::leak(name.into());
        let scope: &'static Scope = Box::leak(Box::new(Scope::new(name)));
        known.insert(name, scope);
        scope
    }
}
