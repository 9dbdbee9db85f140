//! Runs a trace on a thread of its own, so that the caller can measure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tiptoe_collector::{
    Budget, CallOptions, Observer, Outcome, Request, RequestTarget, RunOptions, Split,
};
use tiptoe_event::{Event, Filter, Memory, ProbeSpec, UserLocks, Via, WaitSelection};
use tiptoe_session::{Call, Interval, Session};

use crate::assembly::Site;
use crate::error::Error;
use crate::target::Target;

#[derive(Clone, Debug)]
pub(crate) struct TraceRequest<'a> {
    pub agent: &'static [u8],
    pub sites: &'a [Site],
    pub via: Via,
    pub filter: Option<Filter>,
    pub under: Option<&'a str>,
    pub by: Option<Split>,
    pub calls: Calls,
    /// Whether the agent (tiptoe's code in the program) always locks its mappings to look up a trap's probe.
    pub locked_lookups: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Calls {
    #[default]
    Entries,
    Returns,
    Times,
    Records,
}

#[derive(Debug)]
pub(crate) struct Tracing {
    stop: Arc<AtomicBool>,
    driver: Option<JoinHandle<RunResult>>,
}

type RunResult = Result<Outcome, tiptoe_collector::Error>;

struct Silent;

impl Observer for Silent {
    fn interval(&mut self, _interval: &Interval) {}
    fn calls(&mut self, _calls: &[Call<'_>]) {}
    fn wants_calls(&self) -> bool {
        false
    }
    fn note(&mut self, _note: &tiptoe_session::Note) {}
}

const LIMIT: Duration = Duration::from_secs(60);

impl Tracing {
    /// Starts a trace, and returns when every function has its probe.
    pub(crate) fn start(target: &mut Target, traced: &TraceRequest) -> Result<Tracing, Error> {
        let mut tracing = Tracing::begin(target.pid(), traced);
        tracing.wait(target, traced.sites)?;
        Ok(tracing)
    }

    /// Starts a trace, and returns at once.
    pub(crate) fn begin(pid: u32, traced: &TraceRequest) -> Tracing {
        let kind = match traced.calls {
            Calls::Returns => "uretprobe",
            Calls::Entries | Calls::Times | Calls::Records => "uprobe",
        };
        let sites = traced.sites.iter();
        let specs: Vec<String> = sites
            .map(|site| format!("{kind}:{}_at*", site.name))
            .collect();
        let under = traced.under.map(str::to_owned);
        let request = Request {
            split: traced.by,
            calls: CallOptions {
                filter: traced.filter,
                latency: traced.calls == Calls::Times,
                record: traced.calls == Calls::Records,
                locked_lookups: traced.locked_lookups,
                ..CallOptions::default()
            },
            ..request(pid, traced.via, traced.agent)
        };
        Tracing::spawn(request, move |request, silent| {
            let calls = CallOptions {
                under: under.as_deref().map(probe),
                ..request.calls
            };
            let events = specs.iter().map(|spec| Event::Probe(probe(spec))).collect();
            let request = Request {
                events,
                calls,
                ..request
            };
            tiptoe_collector::run(&request, silent)
        })
    }

    pub(crate) fn locks(
        pid: u32,
        via: Via,
        hold: Option<&str>,
        budget: Budget,
        agent: &'static [u8],
    ) -> Tracing {
        let request = Request {
            budget,
            ..request(pid, via, agent)
        };
        let hold = hold.map(str::to_owned);
        Tracing::spawn(request, move |request, silent| {
            let held = hold.as_deref();
            run_event(request, Event::UserLocks(UserLocks { held }), silent)
        })
    }

    pub(crate) fn scopes(pid: u32, agent: &'static [u8]) -> Tracing {
        let request = request(pid, Via::Agent, agent);
        Tracing::spawn(request, |request, silent| {
            run_event(request, Event::Scopes, silent)
        })
    }

    pub(crate) fn kernel_locks(watched: WaitSelection) -> Tracing {
        let request = Request {
            target: RequestTarget::System,
            ..Request::default()
        };
        Tracing::spawn(request, move |request, silent| {
            run_event(request, Event::KernelLocks(watched), silent)
        })
    }

    pub(crate) fn watch(pid: u32, variable: &str, budget: Budget) -> Tracing {
        // The request has no agent, because the kernel watches variables.
        let request = Request {
            budget,
            ..request(pid, Via::Auto, &[])
        };
        let variable = variable.to_owned();
        Tracing::spawn(request, move |request, silent| {
            let memory = Memory::parse(&variable).expect("a bench names its variable");
            run_event(request, Event::Memory(memory), silent)
        })
    }

    fn spawn(
        request: Request<'static>,
        run: impl FnOnce(Request<'static>, &mut Silent) -> RunResult + Send + 'static,
    ) -> Tracing {
        let stop = Arc::clone(&request.options.stop);
        let driver = Some(std::thread::spawn(move || run(request, &mut Silent)));
        Tracing { stop, driver }
    }

    /// Stops the trace, and returns when no function has a probe any more.
    pub(crate) fn detach(&mut self, target: &mut Target, sites: &[Site]) -> Result<(), Error> {
        // Relaxed: the flag only ends the trace.
        self.stop.store(true, Relaxed);
        let until = Instant::now() + LIMIT;
        for &site in sites {
            while target.probed(site)? > 0 {
                if Instant::now() > until {
                    return Err(Error::StillProbed(site.name));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.driver.as_ref().is_none_or(JoinHandle::is_finished)
    }

    pub(crate) fn finish(mut self) -> Result<Session, Error> {
        self.end().map(|outcome| outcome.session)
    }

    pub(crate) fn wait(&mut self, target: &mut Target, sites: &[Site]) -> Result<(), Error> {
        let until = Instant::now() + LIMIT;
        for &site in sites {
            while target.probed(site)? < site.functions * site.places {
                if self.is_over() {
                    self.end()?;
                    return Err(Error::Unprobed(site.name));
                }
                if Instant::now() > until {
                    return Err(Error::Unprobed(site.name));
                }
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<Outcome, Error> {
        // Relaxed: the flag only ends the trace; the join orders the outcome.
        self.stop.store(true, Relaxed);
        let driver = self.driver.take().ok_or(Error::Unprobed("nothing"))?;
        match driver.join() {
            Ok(outcome) => Ok(outcome?),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

pub(crate) fn attached() -> usize {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let names = open
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok());
    names
        .filter(|name| name.to_string_lossy().contains("bpf_link"))
        .count()
}

pub(crate) fn trace_once(
    pid: u32,
    spec: &str,
    via: Via,
    agent: &'static [u8],
) -> Result<Session, Error> {
    // A duration of 0 ends the run after the attach, which the flag `stop` would interrupt.
    let request = Request {
        options: RunOptions {
            duration: Some(Duration::ZERO),
            ..RunOptions::default()
        },
        ..request(pid, via, agent)
    };
    Ok(run_event(request, Event::Probe(probe(spec)), &mut Silent)?.session)
}

fn run_event(request: Request<'_>, event: Event<'_>, silent: &mut Silent) -> RunResult {
    let request = Request {
        events: vec![event],
        ..request
    };
    tiptoe_collector::run(&request, silent)
}

fn probe(text: &str) -> ProbeSpec<'_> {
    ProbeSpec::parse(text).expect("a bench names its functions")
}

fn request(pid: u32, via: Via, agent: &'static [u8]) -> Request<'static> {
    Request {
        agent,
        target: RequestTarget::Pids(vec![pid]),
        via,
        ..Request::default()
    }
}
