//! The modules of a crate as its sources declare them: files, names, and the paths that each module mentions. Tests and fuzz targets are left out.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::{Attribute, Item, Meta, MetaList, Token, UseTree, punctuated::Punctuated};

/// A module's place in [`Crate::modules`].
pub(super) type Id = usize;

/// What one `use` brings into its module.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) path: Vec<String>,
    /// `None` for a glob.
    pub(super) name: Option<String>,
}

/// A module, in a file of its own or inline.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// The path below the crate; empty for the root.
    pub(super) path: Vec<String>,
    pub(super) parent: Option<Id>,
    /// The module whose file this one stands in.
    pub(super) file: Id,
    pub(super) children: HashMap<String, Id>,
    /// The names of its own items.
    pub(super) items: HashSet<String>,
    pub(super) uses: Vec<Use>,
    /// Paths of two or more parts in its code, macros included.
    pub(super) paths: Vec<Vec<String>>,
}

/// A crate's modules, the root first.
#[derive(Debug)]
pub(super) struct Crate {
    pub(super) modules: Vec<Module>,
}

impl Crate {
    /// Reads the crate whose root is the file `root`.
    ///
    /// # Errors
    /// A file cannot be read or is not Rust.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut crate_ = Self { modules: vec![Module::default()] };
        let folder = root.parent().unwrap_or(root);
        crate_.read_file(root, folder, 0)?;
        Ok(crate_)
    }

    /// Reads one file; its submodules' files are in `folder`.
    fn read_file(&mut self, file: &Path, folder: &Path, id: Id) -> Result<()> {
        let text = fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
        let parsed = syn::parse_file(&text).with_context(|| format!("failed to parse {}", file.display()))?;
        self.read_items(&parsed.items, folder, id)
    }

    fn read_items(&mut self, items: &[Item], folder: &Path, id: Id) -> Result<()> {
        for item in items {
            if let Item::Mod(item) = item {
                if is_test(&item.attrs) {
                    continue;
                }
                let name = item.ident.to_string();
                let folder = folder.join(&name);
                match &item.content {
                    Some((_, items)) => {
                        let child = self.add(id, name, true);
                        self.read_items(items, &folder, child)?;
                    }
                    None => {
                        let child = self.add(id, name, false);
                        self.read_file(&file_of(&folder), &folder, child)?;
                    }
                }
            } else if let Some(module) = self.modules.get_mut(id) {
                let mut scan = Scan { module };
                scan.tokens(item.to_token_stream());
                if let Some(name) = name(item) {
                    module.items.insert(name);
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, parent: Id, name: String, inline: bool) -> Id {
        let id = self.modules.len();
        let above = &mut self.modules[parent];
        above.children.insert(name.clone(), id);
        let file = if inline { above.file } else { id };
        let path = above.path.iter().cloned().chain([name]).collect();
        self.modules.push(Module { path, parent: Some(parent), file, ..Module::default() });
        id
    }
}

/// `name.rs`, or `name/mod.rs` if there is none.
fn file_of(folder: &Path) -> PathBuf {
    let beside = folder.with_extension("rs");
    if beside.is_file() { beside } else { folder.join("mod.rs") }
}

fn name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| is_for_tests(&attribute.meta))
}

/// Whether the attribute is a `cfg` under which only tests or fuzz targets are compiled.
fn is_for_tests(attribute: &Meta) -> bool {
    let Meta::List(list) = attribute else { return false };
    list.path.is_ident("cfg") && list.parse_args().is_ok_and(|condition| only_tests_meet(&condition))
}

fn only_tests_meet(condition: &Meta) -> bool {
    let parts = |list: &MetaList| list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
    match condition {
        Meta::Path(word) => word.is_ident("test") || word.is_ident("fuzzing"),
        Meta::List(list) if list.path.is_ident("any") => {
            parts(list).is_ok_and(|parts| parts.iter().all(only_tests_meet))
        }
        Meta::List(list) if list.path.is_ident("all") => {
            parts(list).is_ok_and(|parts| parts.iter().any(only_tests_meet))
        }
        Meta::List(_) | Meta::NameValue(_) => false,
    }
}

/// Collects what an item's tokens mention.
struct Scan<'a> {
    module: &'a mut Module,
}

impl Scan<'_> {
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += match token {
                TokenTree::Punct(hash) if hash.as_char() == '#' && self.attribute(tokens.get(at + 1)) => {
                    rest_of_item(&tokens[at..])
                }
                TokenTree::Group(group) => {
                    self.tokens(group.stream());
                    1
                }
                TokenTree::Ident(word) if word == "use" => self.import(&tokens[at..]),
                TokenTree::Ident(_) => self.path(&tokens[at..]),
                TokenTree::Punct(_) | TokenTree::Literal(_) => 1,
            };
        }
    }

    /// Whether the attribute says that what follows is for tests; paths in strings (`serde`) are noted.
    fn attribute(&mut self, brackets: Option<&TokenTree>) -> bool {
        let Some(TokenTree::Group(group)) = brackets else { return false };
        let Ok(attribute) = syn::parse2::<Meta>(group.stream()) else { return false };
        if let Meta::List(list) = &attribute
            && list.path.is_ident("serde")
        {
            for argument in list.tokens.clone() {
                let path = syn::parse2::<syn::LitStr>(argument.into()).and_then(|text| text.parse::<syn::Path>());
                let path = path.map(|path| path.segments.iter().map(|part| part.ident.to_string()).collect::<Vec<_>>());
                self.module.paths.extend(path.ok().filter(|path| path.len() > 1));
            }
        }
        is_for_tests(&attribute)
    }

    /// Notes a `use`; returns how many tokens it has.
    fn import(&mut self, tokens: &[TokenTree]) -> usize {
        let end = |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ';');
        let Some(length) = tokens.iter().position(end).map(|end| end + 1) else { return 1 };
        // What is no import, such as `use<'a>` in a signature, does not parse.
        let Ok(item) = syn::parse2::<syn::ItemUse>(tokens[..length].iter().cloned().collect()) else { return 1 };
        self.tree(&item.tree, &[]);
        length
    }

    fn tree(&mut self, tree: &UseTree, above: &[String]) {
        let with = |name: &syn::Ident| -> Vec<String> { above.iter().cloned().chain([name.to_string()]).collect() };
        match tree {
            UseTree::Path(path) => self.tree(&path.tree, &with(&path.ident)),
            UseTree::Group(group) => group.items.iter().for_each(|item| self.tree(item, above)),
            UseTree::Glob(_) => self.module.uses.push(Use { path: above.to_vec(), name: None }),
            UseTree::Name(name) if name.ident == "self" => {
                self.module.uses.push(Use { path: above.to_vec(), name: above.last().cloned() });
            }
            UseTree::Name(name) => {
                self.module.uses.push(Use { path: with(&name.ident), name: Some(name.ident.to_string()) });
            }
            UseTree::Rename(name) => {
                self.module.uses.push(Use { path: with(&name.ident), name: Some(name.rename.to_string()) });
            }
        }
    }

    /// Notes a path that begins here; returns how many tokens it has.
    fn path(&mut self, tokens: &[TokenTree]) -> usize {
        let mut path = Vec::new();
        let mut at = 0;
        while let Some(TokenTree::Ident(part)) = tokens.get(at) {
            path.push(part.to_string());
            at += 1;
            if !is_double_colon(&tokens[at..]) {
                break;
            }
            at += 2;
        }
        if path.len() > 1 || at > 1 {
            self.module.paths.push(path);
        }
        at
    }
}

fn is_double_colon(tokens: &[TokenTree]) -> bool {
    let [TokenTree::Punct(first), TokenTree::Punct(second), ..] = tokens else { return false };
    first.as_char() == ':' && first.spacing() == Spacing::Joint && second.as_char() == ':'
}

/// How many tokens the item has that begins with these attributes: up to its body or its semicolon.
fn rest_of_item(tokens: &[TokenTree]) -> usize {
    let last = tokens.iter().position(|token| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(mark) => mark.as_char() == ';',
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    });
    last.map_or(tokens.len(), |last| last + 1)
}
