//! The graph of lock orders. A node is a class of locks at one depth.

use core::any::TypeId;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

use super::report::Step;
use super::rules::{HeldAs, WantedAs};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) held_as: HeldAs,
    pub(super) to: u32,
    pub(super) wanted_as: WantedAs,
}

type WantedNode = (u32, WantedAs);

pub(super) enum AddedEdge {
    Existing,
    New,
    /// The edge closes this ring. The edge stays in the graph, so that the ring is reported once.
    Ring(Vec<Step>),
}

#[derive(Default)]
pub(super) struct Graph {
    classes: HashMap<TypeId, u32>,
    last_class: u32,
    last_own: u32,
    steps: HashMap<Edge, Step>,
    from: HashMap<u32, Vec<Edge>>,
    to: HashMap<u32, Vec<u32>>,
    /// The reported faults without a ring: the wanted lock's node, and the call sites of both locks.
    reported: HashSet<(u32, [usize; 2])>,
}

fn graph() -> MutexGuard<'static, Graph> {
    static GRAPH: LazyLock<Mutex<Graph>> = LazyLock::new(Mutex::default);
    GRAPH.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn class_of(class: TypeId) -> u32 {
    let mut graph = graph();
    if let Some(known) = graph.classes.get(&class) {
        return *known;
    }
    graph.last_class += 1;
    let new = graph.last_class;
    graph.classes.insert(class, new);
    new
}

pub(super) fn own_class() -> u32 {
    let mut graph = graph();
    graph.last_own = graph.last_own.wrapping_add(1);
    graph.last_own
}

pub(super) fn forget(node: u32) {
    graph().forget(node);
}

pub(super) fn is_new_fault(node: u32, places: [usize; 2]) -> bool {
    graph().reported.insert((node, places))
}

/// Calls `step`, which captures a stack, only for a new edge.
pub(super) fn add(edge: Edge, step: impl FnOnce() -> Step) -> AddedEdge {
    graph().add(edge, step)
}

impl Graph {
    fn add(&mut self, edge: Edge, step: impl FnOnce() -> Step) -> AddedEdge {
        if self.steps.contains_key(&edge) {
            return AddedEdge::Existing;
        }
        let step = step();
        let ring = self.path_back(edge).map(|ring| {
            let before = ring.iter().filter_map(|edge| self.steps.get(edge).cloned());
            [step.clone()].into_iter().chain(before).collect()
        });
        self.steps.insert(edge, step);
        self.from.entry(edge.from).or_default().push(edge);
        self.to.entry(edge.to).or_default().push(edge.from);
        ring.map_or(AddedEdge::New, AddedEdge::Ring)
    }

    /// Returns the shortest path of edges from `edge.to` to `edge.from` on which each thread waits for the next.
    fn path_back(&self, edge: Edge) -> Option<Vec<Edge>> {
        let start: WantedNode = (edge.to, edge.wanted_as);
        let mut came_by: HashMap<WantedNode, (Edge, WantedNode)> = HashMap::new();
        let mut open = VecDeque::from([start]);
        while let Some(place) = open.pop_front() {
            let out = self.from.get(&place.0).into_iter().flatten();
            for next in out.filter(|next| place.1.waits_for(next.held_as)) {
                let there = (next.to, next.wanted_as);
                if there == start || came_by.contains_key(&there) {
                    continue;
                }
                came_by.insert(there, (*next, place));
                if next.to == edge.from && next.wanted_as.waits_for(edge.held_as) {
                    return Some(path_to(there, &came_by));
                }
                open.push_back(there);
            }
        }
        None
    }

    fn forget(&mut self, node: u32) {
        for edge in self.from.remove(&node).into_iter().flatten() {
            self.steps.remove(&edge);
            if let Some(to) = self.to.get_mut(&edge.to) {
                to.retain(|from| *from != node);
            }
        }
        for from in self.to.remove(&node).into_iter().flatten() {
            let Some(edges) = self.from.get_mut(&from) else {
                continue;
            };
            edges.retain(|edge| {
                let stays = edge.to != node;
                if !stays {
                    self.steps.remove(edge);
                }
                stays
            });
        }
        self.reported.retain(|(other, _)| *other != node);
    }
}

fn path_to(mut place: WantedNode, came_by: &HashMap<WantedNode, (Edge, WantedNode)>) -> Vec<Edge> {
    let mut path = Vec::new();
    while let Some((edge, before)) = came_by.get(&place) {
        path.push(*edge);
        place = *before;
    }
    path.reverse();
    path
}
