//! Access records: one JSON object a line for each section.

use super::classify::Class;
use super::locations::Locations;
use super::section::{End, Section, Sides};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// What a location is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// What tells it from others, in other runs too where that can be: `variable+0x18`, else its address.
    pub name: String,
    /// What a reader calls it, if that is something else: `stats.hits`.
    pub readable: Option<String>,
}

/// Names for addresses.
pub trait Naming {
    /// Of a location.
    fn location(&mut self, address: u64) -> Location;
    /// Of an instruction: `function (file:line)`.
    fn code(&mut self, address: u64) -> String;
    /// Of a lock.
    fn lock(&mut self, address: u64) -> String;
    /// Of the place that a section is known by.
    fn place(&mut self, section: &Section) -> Place;
}

/// Where a section begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The place that uses the lock: `function (file:line)`.
    pub site: String,
    /// Where in a method of the lock's own class the lock is requested, if the place is that of the method's caller.
    pub method: Option<String>,
}

/// One section, as it is written.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Record {
    /// Always 0: one run.
    pub run: u32,
    /// In the order in which the locks were acquired.
    pub seq: u64,
    /// Who.
    pub tid: String,
    /// The lock's name.
    pub lock: String,
    /// Its address.
    pub lock_addr: String,
    /// `exclusive` or `shared`.
    pub mode: &'static str,
    /// The static critical section.
    pub site: String,
    /// The place in a method of the lock's own class in which the lock is requested, if `site` is that of the method's caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Locations read, ascending by name.
    pub reads: Vec<String>,
    /// Locations written.
    pub writes: Vec<String>,
    /// All accesses in order: `r` or `w`.
    pub accesses: String,
    /// Their locations; `null` for one that is the thread's own, or the lock's.
    pub at: Vec<Option<String>>,
    /// Where in the code each is made.
    pub code: Vec<String>,
    /// What a reader calls the locations, where that differs.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, String>,
    /// Conditional branches in it, by address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<Branch>,
    /// System calls in it, of which only known buffers are among the accesses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub opaque: Vec<String>,
    /// Whether it was not followed to its end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_by: Option<String>,
    /// Whether it lay inside another one that was followed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub nested: bool,
    /// Instructions in it.
    pub instructions: u64,
    /// How often its thread was stopped to follow it.
    pub stops: u64,
}

/// A conditional branch in a section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Branch {
    /// Its location: `program+0x1234`.
    pub at: String,
    /// Where in the code that is.
    pub code: String,
    /// How often it was taken.
    pub taken: u64,
    /// How often it was not.
    pub not_taken: u64,
}

/// Records of sections, which are in the order of acquisition. With `all`, what is the thread's own or the lock's is kept as well,
/// named by its class.
#[must_use]
pub fn records(sections: &[Section], naming: &mut dyn Naming, all: bool) -> Vec<Record> {
    let accesses = || sections.iter().flat_map(|section| &section.accesses);
    let locations = Locations::of(accesses().map(|(access, _)| (access.touch.address, access.touch.size)));
    // What is on one thread's stack, but used by others too, is shared.
    let shared: HashSet<u64> = accesses()
        .filter(|(_, class)| *class == Class::Shared)
        .flat_map(|(access, _)| locations.parts(access.touch.address, access.touch.size))
        .collect();
    let mut names = Names { naming, locations: HashMap::new(), code: HashMap::new(), taken: HashMap::new() };
    let one = |(seq, section): (usize, &Section)| {
        let place = names.naming.place(section);
        let mut record = Record {
            run: 0,
            seq: seq as u64,
            tid: section.tid.to_string(),
            lock: names.naming.lock(section.lock),
            lock_addr: format!("{:#x}", section.lock),
            mode: if section.shared { "shared" } else { "exclusive" },
            site: place.site,
            method: place.method,
            reads: Vec::new(),
            writes: Vec::new(),
            accesses: String::new(),
            at: Vec::new(),
            code: Vec::new(),
            names: BTreeMap::new(),
            branches: Vec::new(),
            opaque: section.opaque.clone(),
            cut: section.is_cut(),
            cut_by: match &section.end {
                End::Cut(why) => Some(why.to_string()),
                End::Released | End::Waits => None,
            },
            nested: section.nested,
            instructions: section.instructions,
            stops: section.stops,
        };
        for (&address, &Sides { taken, not_taken }) in &section.branches {
            let (at, code) = (names.location(address).name, names.code(address));
            record.branches.push(Branch { at, code, taken, not_taken });
        }
        let (mut reads, mut writes) = (BTreeSet::new(), BTreeSet::new());
        for &(access, class) in &section.accesses {
            let code = names.code(access.at);
            for part in locations.parts(access.touch.address, access.touch.size) {
                let own = matches!(class, Class::Stack | Class::ThreadLocal) && !shared.contains(&part);
                let hidden = own || matches!(class, Class::Lock | Class::Kernel | Class::Linkage);
                let location = match (hidden, all) {
                    (true, false) => None,
                    (true, true) => Some(Location { name: format!("{} {part:#x}", class.name()), readable: None }),
                    (false, _) => Some(names.location(part)),
                };
                if let Some(Location { name, readable: Some(readable) }) = &location {
                    record.names.entry(name.clone()).or_insert_with(|| readable.clone());
                }
                let name = location.map(|location| location.name);
                if let Some(name) = &name {
                    if access.touch.kind.reads() {
                        reads.insert(name.clone());
                    }
                    if access.touch.kind.writes() {
                        writes.insert(name.clone());
                    }
                }
                for letter in Section::letters(access.touch.kind).chars() {
                    record.accesses.push(letter);
                    record.at.push(name.clone());
                    record.code.push(code.clone());
                }
            }
        }
        record.reads = reads.into_iter().collect();
        record.writes = writes.into_iter().collect();
        record
    };
    sections.iter().enumerate().map(one).collect()
}

/// Each address is asked for once.
struct Names<'a> {
    naming: &'a mut dyn Naming,
    locations: HashMap<u64, Location>,
    code: HashMap<u64, String>,
    taken: HashMap<String, u64>,
}

impl Names<'_> {
    fn location(&mut self, address: u64) -> Location {
        let new = || {
            let mut location = self.naming.location(address);
            // Static variables of two files may have the same name.
            if *self.taken.entry(location.name.clone()).or_insert(address) != address {
                location.name = format!("{}@{address:#x}", location.name);
            }
            location
        };
        self.locations.entry(address).or_insert_with(new).clone()
    }

    fn code(&mut self, address: u64) -> String {
        self.code.entry(address).or_insert_with(|| self.naming.code(address)).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::section::Asked;
    use crate::access::{Access, Kind, Touch, Way};

    struct Plain;
    impl Naming for Plain {
        fn location(&mut self, address: u64) -> Location {
            let readable = (address == 0x108).then(|| "stats.hits".to_owned());
            Location { name: format!("stats+{:#x}", address - 0x100), readable }
        }
        fn code(&mut self, address: u64) -> String {
            format!("f (a.c:{address})")
        }
        fn lock(&mut self, address: u64) -> String {
            format!("lock {address:#x}")
        }
        fn place(&mut self, section: &Section) -> Place {
            Place {
                site: format!("g (a.c:{})", section.site),
                method: (section.tid == 2).then(|| "Lock::lock".to_owned()),
            }
        }
    }

    fn section(tid: u32, accesses: &[(u64, u64, Kind, Class)]) -> Section {
        let access = |&(address, size, kind, class): &(u64, u64, Kind, Class)| {
            (Access { at: 7, touch: Touch { address, size, kind, way: Way::Plain } }, class)
        };
        Section {
            lock: 0x40,
            shared: false,
            site: 9,
            asked: Asked::default(),
            tid,
            nested: false,
            accesses: accesses.iter().map(access).collect(),
            branches: BTreeMap::from([(0x120, Sides { taken: 2, not_taken: 0 })]),
            opaque: Vec::new(),
            instructions: 3,
            stops: 1,
            end: End::Released,
        }
    }

    #[test]
    fn locations_are_divided_and_private_ones_left_out() {
        let sections = [
            section(1, &[(0x100, 16, Kind::Read, Class::Shared), (0x900, 8, Kind::Write, Class::Stack)]),
            section(2, &[(0x108, 8, Kind::Update, Class::Shared), (0x40, 4, Kind::Read, Class::Lock)]),
        ];
        let [one, two] = records(&sections, &mut Plain, false).try_into().unwrap();
        assert_eq!((one.seq, one.reads, one.writes), (0, vec!["stats+0x0".into(), "stats+0x8".into()], Vec::new()));
        assert_eq!((one.accesses.as_str(), one.at[2].clone()), ("rrw", None));
        assert_eq!((two.seq, two.accesses.as_str(), two.writes.len(), two.reads.len()), (1, "rwr", 1, 1));
        assert_eq!(two.names["stats+0x8"], "stats.hits");
        let branch = Branch { at: "stats+0x20".into(), code: "f (a.c:288)".into(), taken: 2, not_taken: 0 };
        assert_eq!(two.branches, [branch]);
        assert_eq!((one.site.as_str(), one.method, two.method.as_deref()), ("g (a.c:9)", None, Some("Lock::lock")));
        let all = records(&sections, &mut Plain, true);
        assert_eq!((&all[0].writes, &all[1].reads[0]), (&vec!["stack 0x900".to_owned()], &"lock 0x40".to_owned()));
        let line = serde_json::to_string(&all[0]).unwrap();
        assert!(!line.contains("\"cut\"") && line.starts_with("{\"run\":0,\"seq\":0,\"tid\":\"1\""), "{line}");
    }

    #[test]
    fn what_others_use_on_a_stack_is_shared() {
        let sections = [
            section(1, &[(0x108, 8, Kind::Write, Class::Stack), (0x110, 8, Kind::Write, Class::Stack)]),
            section(2, &[(0x108, 8, Kind::Read, Class::Shared)]),
        ];
        let [one, two] = records(&sections, &mut Plain, false).try_into().unwrap();
        assert_eq!((&one.writes, &one.writes), (&two.reads, &vec!["stats+0x8".to_owned()]));
        assert_eq!(one.at, [Some("stats+0x8".to_owned()), None]);
    }
}
