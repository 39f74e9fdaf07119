//! The graph of dependencies between transactions.
//!
//! Invariant: an edge `a → b` means that `a` comes before `b` in every order that explains the history.

use std::collections::BTreeSet;

/// Why a transaction comes before another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Dependency {
    /// The second one overwrites a version of the first one.
    WriteWrite,
    /// The second one reads a version of the first one.
    WriteRead,
    /// The second one overwrites a version that the first one read (anti-dependency).
    ReadWrite,
    /// Both are of one client, in this order.
    Session,
    /// The first one was answered before the second one was sent.
    RealTime,
}

/// A directed graph; its nodes are indices of transactions.
#[derive(Default)]
pub struct Graph {
    edges: Vec<BTreeSet<(usize, Dependency)>>,
}

impl Graph {
    /// A graph of so many nodes, without edges.
    pub fn new(nodes: usize) -> Graph {
        Graph { edges: vec![BTreeSet::new(); nodes] }
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.edges.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// Adds an edge. An edge from a node to itself is no dependency.
    pub fn add(&mut self, from: usize, to: usize, why: Dependency) {
        if from != to
            && let Some(edges) = self.edges.get_mut(from)
        {
            edges.insert((to, why));
        }
    }

    /// The edges of a node, in a fixed order.
    pub fn edges(&self, from: usize) -> impl Iterator<Item = (usize, Dependency)> {
        self.edges.get(from).into_iter().flatten().copied()
    }

    /// The strongly connected components of more than one node, by edges of these kinds (Tarjan's algorithm, with a
    /// stack of its own: histories are long).
    pub fn components(&self, kinds: &[Dependency]) -> Vec<Vec<usize>> {
        let mut search = Tarjan {
            graph: self,
            kinds,
            next: 0,
            index: vec![None; self.len()],
            low: vec![0; self.len()],
            on_stack: vec![false; self.len()],
            stack: Vec::new(),
            found: Vec::new(),
        };
        for node in 0..self.len() {
            search.visit(node);
        }
        search.found
    }
}

struct Tarjan<'a> {
    graph: &'a Graph,
    kinds: &'a [Dependency],
    next: usize,
    index: Vec<Option<usize>>,
    low: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    found: Vec<Vec<usize>>,
}

impl Tarjan<'_> {
    fn successors(&self, node: usize) -> Vec<usize> {
        let edges = self.graph.edges(node).filter(|(_, why)| self.kinds.contains(why));
        edges.map(|(to, _)| to).collect()
    }

    fn enter(&mut self, node: usize) {
        self.index[node] = Some(self.next);
        self.low[node] = self.next;
        self.next += 1;
        self.stack.push(node);
        self.on_stack[node] = true;
    }

    fn visit(&mut self, root: usize) {
        if self.index[root].is_some() {
            return;
        }
        self.enter(root);
        let mut path = vec![(root, self.successors(root))];
        while let Some((node, left)) = path.last_mut() {
            let node = *node;
            let Some(to) = left.pop() else {
                path.pop();
                if let Some((parent, _)) = path.last() {
                    self.low[*parent] = self.low[*parent].min(self.low[node]);
                }
                self.leave(node);
                continue;
            };
            match self.index[to] {
                None => {
                    self.enter(to);
                    path.push((to, self.successors(to)));
                }
                Some(index) if self.on_stack[to] => {
                    self.low[node] = self.low[node].min(index);
                }
                Some(_) => {}
            }
        }
    }

    /// Takes the component off the stack whose first node this one is.
    fn leave(&mut self, node: usize) {
        if self.index[node] != Some(self.low[node]) {
            return;
        }
        let mut component = Vec::new();
        while let Some(member) = self.stack.pop() {
            self.on_stack[member] = false;
            component.push(member);
            if member == node {
                break;
            }
        }
        if component.len() > 1 {
            component.sort_unstable();
            self.found.push(component);
        }
    }
}
