//! A crate's modules, and the names that each file uses from others. Items for tests, loom and miri are excluded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{ForeignItem, Item, Meta, UseTree};

use crate::root;

/// A module: a file or a part of one.
pub struct Module {
    /// The file's index in [`CrateModules::paths`].
    pub file: usize,
    /// All items except modules.
    pub items: Vec<Item>,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    defined: BTreeSet<String>,
    used: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
}

/// For two files, by index: the names of the second file that the first one uses.
pub type Edges = BTreeMap<(usize, usize), BTreeSet<String>>;

/// A crate's modules, the root first.
pub struct CrateModules {
    /// The files, from `src`.
    pub paths: Vec<String>,
    /// Each file's text.
    pub texts: Vec<String>,
    /// The modules.
    pub modules: Vec<Module>,
    source: PathBuf,
}

impl CrateModules {
    /// Reads the library of a crate such as `host/price`, or its program if there is no library.
    pub fn read(folder: &str) -> Self {
        let source = root().join("crates").join(folder).join("src");
        let doors = ["lib.rs", "main.rs"].map(|name| source.join(name));
        let door = doors.iter().find(|door| door.exists());
        Self::under(door.expect("a crate has a root file"))
    }

    pub(crate) fn under(door: &Path) -> Self {
        let source = door.parent().expect("a file is in a folder").to_owned();
        let mut crate_modules = Self {
            paths: Vec::new(),
            texts: Vec::new(),
            modules: Vec::new(),
            source: source.clone(),
        };
        crate_modules.add_file(door, &source, None);
        crate_modules
    }

    fn add_file(&mut self, path: &Path, folder: &Path, parent: Option<usize>) -> usize {
        let text = std::fs::read_to_string(path);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let tree = syn::parse_file(&text);
        let tree = tree.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.strip_prefix(&self.source).unwrap_or(path);
        self.paths.push(name.display().to_string());
        self.texts.push(text);
        self.add_module(tree.items, self.paths.len() - 1, folder, parent)
    }

    fn add_module(
        &mut self,
        items: Vec<Item>,
        file: usize,
        folder: &Path,
        parent: Option<usize>,
    ) -> usize {
        let module = self.modules.len();
        self.modules.push(Module {
            file,
            items: Vec::new(),
            parent,
            children: BTreeMap::new(),
            defined: BTreeSet::new(),
            used: BTreeMap::new(),
            globs: Vec::new(),
        });
        for item in items
            .into_iter()
            .filter(|item| !is_for_tests(attributes(item)))
        {
            let Item::Mod(child) = item else {
                self.modules[module].add(item);
                continue;
            };
            let name = child.ident.to_string();
            let below = folder.join(&name);
            let index = match child.content {
                Some((_, items)) => self.add_module(items, file, &below, Some(module)),
                None => {
                    let beside = folder.join(format!("{name}.rs"));
                    let inside = below.join("mod.rs");
                    let path = if beside.exists() { beside } else { inside };
                    self.add_file(&path, &below, Some(module))
                }
            };
            self.modules[module].children.insert(name, index);
        }
        module
    }

    /// Returns the names that each file uses from other files. Excludes `pub use`, and what a module uses from
    /// modules that enclose it.
    pub fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        for (index, module) in self.modules.iter().enumerate() {
            let mut references = References::default();
            for item in &module.items {
                references.visit_item(item);
            }
            for path in &references.paths {
                let file = self.file_of(index, path);
                if let Some(file) = file.filter(|file| !self.is_inside(index, *file)) {
                    let name = path.last().cloned().unwrap_or_default();
                    edges.entry((module.file, file)).or_default().insert(name);
                }
            }
        }
        edges
    }

    fn is_inside(&self, module: usize, file: usize) -> bool {
        let mut modules =
            std::iter::successors(Some(module), |module| self.modules[*module].parent);
        modules.any(|module| self.modules[module].file == file)
    }

    /// Returns the file that defines the item at `path`; `None` for a module or another crate's item.
    fn file_of(&self, module: usize, path: &[String]) -> Option<usize> {
        self.find(module, path, 0)
    }

    fn find(&self, module: usize, path: &[String], depth: usize) -> Option<usize> {
        let (first, rest) = path.split_first()?;
        let start = match first.as_str() {
            "crate" => 0,
            "self" => module,
            "super" => self.modules[module].parent?,
            _ => return self.find_inside(module, path, depth),
        };
        if rest.first()? == "super" {
            return self.find(start, rest, depth);
        }
        self.find_inside(start, rest, depth)
    }

    fn find_inside(&self, module: usize, path: &[String], depth: usize) -> Option<usize> {
        // `use` items may form a circle.
        if depth > 16 {
            return None;
        }
        let (first, rest) = path.split_first()?;
        let here = &self.modules[module];
        if let Some(child) = here.children.get(first) {
            return self.find_inside(*child, rest, depth + 1);
        }
        if here.defined.contains(first) {
            return Some(here.file);
        }
        // A `use` path that begins with the searched name itself leads to another crate.
        let is_ours = |path: &&Vec<String>| path.first() != Some(first);
        let follow = |before: &Vec<String>, after: &[String]| {
            let whole = [before.as_slice(), after].concat();
            self.find(module, &whole, depth + 1)
        };
        if let Some(used) = here.used.get(first) {
            return follow(Some(used).filter(is_ours)?, rest);
        }
        let mut globs = here.globs.iter().filter(is_ours);
        globs.find_map(|glob| follow(glob, path))
    }
}

impl Module {
    fn add(&mut self, item: Item) {
        let name = match &item {
            Item::Const(item) => Some(&item.ident),
            Item::Enum(item) => Some(&item.ident),
            Item::Fn(item) => Some(&item.sig.ident),
            Item::Macro(item) => item.ident.as_ref(),
            Item::Static(item) => Some(&item.ident),
            Item::Struct(item) => Some(&item.ident),
            Item::Trait(item) => Some(&item.ident),
            Item::Type(item) => Some(&item.ident),
            Item::Union(item) => Some(&item.ident),
            _ => None,
        };
        self.defined.extend(name.map(ToString::to_string));
        if let Item::ForeignMod(block) = &item {
            let names = block.items.iter().filter_map(|item| match item {
                ForeignItem::Fn(item) => Some(&item.sig.ident),
                ForeignItem::Static(item) => Some(&item.ident),
                _ => None,
            });
            self.defined.extend(names.map(ToString::to_string));
        }
        let mut uses = UseItems::default();
        uses.visit_item(&item);
        for (name, path) in uses.paths {
            match name {
                Some(name) => {
                    self.used.insert(name, path);
                }
                None => self.globs.push(path),
            }
        }
        self.items.push(item);
    }
}

/// The paths of `use` items, each with its name in this module; `None` for `::*`.
#[derive(Default)]
struct UseItems {
    paths: Vec<(Option<String>, Vec<String>)>,
}

impl UseItems {
    fn add(&mut self, tree: &UseTree, before: &[String]) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.add(&path.tree, &with(&path.ident)),
            UseTree::Name(name) if name.ident == "self" => {
                self.paths.push((before.last().cloned(), before.to_vec()));
            }
            UseTree::Name(name) => {
                self.paths
                    .push((Some(name.ident.to_string()), with(&name.ident)));
            }
            UseTree::Rename(name) => {
                self.paths
                    .push((Some(name.rename.to_string()), with(&name.ident)));
            }
            UseTree::Glob(_) => self.paths.push((None, before.to_vec())),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add(tree, before);
                }
            }
        }
    }
}

impl Visit<'_> for UseItems {
    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.add(&item.tree, &[]);
        }
    }
}

#[derive(Default)]
struct References {
    paths: BTreeSet<Vec<String>>,
}

impl References {
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.paths.insert(std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                other => {
                    self.paths.insert(std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.paths.insert(path);
    }
}

impl Visit<'_> for References {
    fn visit_item(&mut self, item: &Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        if matches!(item.vis, syn::Visibility::Inherited) {
            let mut uses = UseItems::default();
            uses.visit_item_use(item);
            self.paths
                .extend(uses.paths.into_iter().map(|(_, path)| path));
        }
    }

    fn visit_path(&mut self, path: &syn::Path) {
        let names = path.segments.iter().map(|one| one.ident.to_string());
        self.paths.insert(names.collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &syn::Macro) {
        self.visit_path(&call.path);
        self.add_tokens(call.tokens.clone());
    }
}

/// Returns whether an item is for tests or models.
pub fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    let mut lists = attributes
        .iter()
        .filter_map(|attribute| match &attribute.meta {
            Meta::List(list) if list.path.is_ident("cfg") => Some(list.tokens.clone()),
            _ => None,
        });
    lists.any(|tokens| syn::parse2::<Meta>(tokens).is_ok_and(|meta| holds_in_tests_only(&meta)))
}

fn holds_in_tests_only(condition: &Meta) -> bool {
    let within = |list: &syn::MetaList| {
        let parser = syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated;
        list.parse_args_with(parser).unwrap_or_default()
    };
    match condition {
        Meta::Path(path) => ["test", "tiptoe_loom", "miri"]
            .iter()
            .any(|name| path.is_ident(name)),
        Meta::List(list) if list.path.is_ident("all") => {
            within(list).iter().any(holds_in_tests_only)
        }
        Meta::List(list) if list.path.is_ident("any") => {
            within(list).iter().all(holds_in_tests_only)
        }
        _ => false,
    }
}

/// Returns an item's attributes.
pub fn attributes(item: &Item) -> &[syn::Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
