//! Patches the C library's functions that take and release locks.

use tiptoe_event::{Comparison, Filter, Join, Operator, Width};
use tiptoe_patch::{Body, Notice, shape, transfers};
use tiptoe_stack::{Base, Rule};
use tiptoe_symbol::Function;
use tiptoe_wire::futex::hold::{FREES, GIVES, LEAVES, SPINS, TAKES, TRIES};

use super::{Draft, Locks, PlannedSite, is_libc};
use crate::error::Reason;
use crate::module::Module;

const FUNCTIONS: [(&str, i32); 22] = [
    ("pthread_mutex_lock", TAKES),
    ("pthread_mutex_trylock", TRIES),
    ("pthread_mutex_timedlock", TRIES),
    ("pthread_mutex_clocklock", TRIES),
    ("pthread_mutex_unlock", FREES),
    ("pthread_rwlock_rdlock", TAKES),
    ("pthread_rwlock_tryrdlock", TRIES),
    ("pthread_rwlock_timedrdlock", TRIES),
    ("pthread_rwlock_clockrdlock", TRIES),
    ("pthread_rwlock_wrlock", TAKES),
    ("pthread_rwlock_trywrlock", TRIES),
    ("pthread_rwlock_timedwrlock", TRIES),
    ("pthread_rwlock_clockwrlock", TRIES),
    ("pthread_rwlock_unlock", GIVES),
    ("pthread_spin_lock", SPINS),
    ("pthread_spin_trylock", TRIES),
    ("pthread_spin_unlock", FREES),
    ("pthread_cond_wait", LEAVES),
    ("pthread_cond_timedwait", LEAVES),
    ("pthread_cond_clockwait", LEAVES),
    ("cnd_wait", LEAVES),
    ("cnd_timedwait", LEAVES),
];

const RETURN_ADDRESS: u32 = 8;
/// A function of at most this many bytes may be only a jump to another function.
const SMALL: usize = 16;

fn turn_of(function: &Function) -> Option<i32> {
    let has = |name: &str| function.names.iter().any(|own| **own == *name);
    let found = FUNCTIONS.iter().find(|(name, _)| has(name));
    found.map(|(_, turn)| *turn)
}

fn body(turn: i32, lock: u64) -> Option<Body> {
    let is_lock = Comparison {
        arg: u8::from(turn == LEAVES),
        width: Width::U64,
        operator: Operator::Eq,
        value: lock as i64,
    };
    Some(Body::Hold {
        notice: Notice::hold(turn, Rule::new(Base::Sp, RETURN_ADDRESS, None)?.bits()),
        filter: Filter::new(Join::All, &[is_lock])?,
    })
}

impl Draft<'_> {
    pub(super) fn holds(&mut self, modules: &[Module], lock: u64, locks: &mut Locks) {
        // If libpthread is a separate library, libc's functions of the same names only call it.
        let threads = modules.iter().any(|m| m.name.starts_with("libpthread"));
        let theirs = |m: &&Module| is_libc(m) && (!threads || m.name.starts_with("libpthread"));
        for module in modules.iter().filter(theirs) {
            for function in module.object.image.functions() {
                let body = turn_of(function).and_then(|turn| body(turn, lock));
                let Some(body) = body else { continue };
                let found = self.hold(module, function, &body).or_else(|why| {
                    let other = led_to(module, function).ok_or_else(|| why.clone())?;
                    self.hold(module, other, &body).map_err(|_| why)
                });
                match found {
                    Ok(planned) => locks.sites.push(planned),
                    Err(why) => {
                        let place = format!("futex:{}:{}", module.name, function.display_name());
                        let why = Reason::HoldsUntimed(Box::new(why));
                        locks.in_part.push((place, why));
                    }
                }
            }
        }
    }

    fn hold(
        &mut self,
        module: &Module,
        function: &Function,
        body: &Body,
    ) -> Result<PlannedSite, Reason> {
        let code = module.object.code(function, module.bias);
        let code = code.ok_or(Reason::NoCode)?;
        let shape = shape(&code, 0)?;
        let planned = self.lock_site(module, &shape, body)?;
        match planned.is_trap() {
            true => Err(Reason::TrapAtLock),
            false => Ok(planned),
        }
    }
}

/// Returns the function to which a small function jumps at its end. That function returns to the same caller.
fn led_to<'a>(module: &'a Module, function: &Function) -> Option<&'a Function> {
    let code = module.object.code(function, module.bias)?;
    let jumps = transfers(&code).into_iter();
    let mut jumps = jumps.filter(|(_, returns_to)| returns_to.is_none());
    let (target, _) = jumps.next_back().filter(|_| code.size <= SMALL)?;
    let target = module.function_at(target)?;
    Some(&module.object.image.functions()[target])
}
