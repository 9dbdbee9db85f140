//! Classes: names for locks. A class is a type, so it takes no memory in the lock.

/// A name for locks, which the order check treats as one lock ([`class!`](crate::class!)).
///
/// ```
/// use tiptoe_lock::{Class, Mutex, Waits};
///
/// struct Sessions;
/// impl Class for Sessions {
///     const NAME: &'static str = "sessions";
/// }
///
/// let sessions: Mutex<Vec<u64>, Waits, Sessions> = Mutex::new(Vec::new());
/// sessions.lock().push(1);
/// ```
pub trait Class: 'static {
    /// The name in reports; empty means none.
    ///
    /// ```
    /// use tiptoe_lock::Class;
    ///
    /// tiptoe_lock::class! { Jobs = "jobs" }
    /// assert_eq!(Jobs::NAME, "jobs");
    /// ```
    const NAME: &'static str;
}

/// The class of locks without a name. Each such lock is checked as its own class, and shown by its address.
///
/// ```
/// use tiptoe_lock::{Class, Unnamed};
///
/// assert_eq!(Unnamed::NAME, "");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unnamed;

impl Class for Unnamed {
    const NAME: &'static str = "";
}

/// Declares [classes](Class), each as a type and its name.
///
/// ```
/// use tiptoe_lock::{RwLock, Waits};
///
/// tiptoe_lock::class! {
///     /// What clients may see.
///     pub Routes = "routes";
///     Peers = "peers";
/// }
///
/// static ROUTES: RwLock<u32, Waits, Routes> = RwLock::new(7);
/// static PEERS: RwLock<u32, Waits, Peers> = RwLock::new(8);
/// ```
#[macro_export]
macro_rules! class {
    ($($(#[$attribute:meta])* $visible:vis $class:ident = $name:literal);+ $(;)?) => {$(
        $(#[$attribute])*
        $visible struct $class;

        impl $crate::Class for $class {
            const NAME: &'static str = $name;
        }
    )+};
}
