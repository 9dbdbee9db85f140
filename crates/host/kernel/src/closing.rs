//! Probes that are being closed.
//!
//! The kernel disarms a probe in the first 0.2 ms of its closing, and then waits: 15 to 90 ms for each (measured on Linux
//! 6.18). So each is closed by a thread of its own, and they wait together.

use std::thread::JoinHandle;

/// At most this many threads.
const MOST: usize = 32;

/// Threads that close probes; dropping this waits for them.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    threads: Vec<JoinHandle<()>>,
}

impl Closing {
    /// Closes what is given, at once.
    pub(crate) fn close(&mut self, probes: impl Send + 'static) {
        self.threads.retain(|thread| !thread.is_finished());
        if self.threads.len() >= MOST {
            return drop(probes);
        }
        let closer = std::thread::Builder::new().name("closing".into());
        // Where there is no thread the probes are dropped with the closure, here.
        if let Ok(thread) = closer.spawn(move || drop(probes)) {
            self.threads.push(thread);
        }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        for thread in self.threads.drain(..) {
            // A thread that only closes descriptors does not panic.
            let _ = thread.join();
        }
    }
}
