//! Closes probes in the background.
//!
//! The kernel disarms a probe in the first 0.2 ms of its closing, and then waits: 15 to 90 ms for each (measured on
//! Linux 6.18). So each is closed by a thread of its own, so that the waits overlap.

use std::thread::JoinHandle;

/// The most threads.
const MOST: usize = 32;

/// Threads that close probes; dropping this waits for them.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    threads: Vec<JoinHandle<()>>,
}

impl Closing {
    /// Closes the probes at once.
    pub(crate) fn close(&mut self, probes: impl Send + 'static) {
        self.threads.retain(|thread| !thread.is_finished());
        if self.threads.len() >= MOST {
            return drop(probes);
        }
        let closer = std::thread::Builder::new().name("closing".into());
        // If no thread can be created, the closure is dropped here, with the probes.
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
