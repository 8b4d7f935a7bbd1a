//! Advice in words: what to do about which lock, what was seen that speaks for it, what it would gain, and what could make
//! it wrong.

use super::patterns::{Adjacent, Pattern, Patterns};
use super::predict::{Predictor, Wish};
use super::records::{Branch, Records};
use super::schema::{FalseSharing, Item, Kind};
use super::sections::{Section, Sections};
use super::suggest::Suggestions;
use super::usydg::{EdgeSource, Usydg};
use crate::report::text::{clip, count, counted, percent};
use std::collections::{BTreeMap, BTreeSet};

/// Characters of a name.
const NAME: usize = 64;
/// Names in a list.
const LISTED: usize = 4;
/// Executions below which a sample is called small.
const FEW: u64 = 30;
/// Into how many locks one is split by its data where a gain is predicted.
const SHARDS: u32 = 4;
/// The share of the executions that change nothing below which readers let each other in to little avail.
const FEW_READERS: f64 = 0.2;
/// The probability of an event that was not seen in n trials is below this part of 1/n, with 95 % confidence.
const RULE_OF_THREE: f64 = 3.0;

/// What advice is made of.
pub(super) struct Advisor<'a> {
    pub(super) records: &'a Records,
    pub(super) graph: &'a Usydg,
    pub(super) patterns: &'a Patterns,
    pub(super) found: &'a Suggestions,
    pub(super) sections: &'a Sections,
    /// By section: how often an optimistic execution would conflict.
    pub(super) p_conflict: &'a BTreeMap<(u32, u32), f64>,
    pub(super) false_sharing: &'a [FalseSharing],
    pub(super) predictor: Option<&'a Predictor<'a>>,
    /// By site, for whom it locks, where its function has several callers.
    pub(super) callers: &'a BTreeMap<u32, String>,
}

/// Names in backticks, with `and` before the last one.
pub(super) fn listed(names: &[String]) -> String {
    let mut all: Vec<String> = names.iter().take(LISTED).map(|name| format!("`{}`", clip(name, NAME))).collect();
    if names.len() > LISTED {
        all.push(format!("{} more", names.len() - LISTED));
    }
    match all.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, first)) => format!("{} and {last}", first.join(", ")),
        None => "nothing".to_owned(),
    }
}

impl Advisor<'_> {
    /// All advice, by lock, those with most executions first.
    pub(super) fn items(&self) -> Vec<Item> {
        let mut locks: BTreeMap<u32, u64> = BTreeMap::new();
        for ((_, lock), section) in self.sections {
            *locks.entry(*lock).or_default() += section.instances;
        }
        let mut locks: Vec<(u32, u64)> = locks.into_iter().collect();
        let name = |lock: u32| self.records.locks.text(lock);
        locks.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| name(a.0).cmp(name(b.0))));
        let mut items: Vec<Item> = locks.iter().flat_map(|&(lock, _)| self.lock(lock)).collect();
        items.extend(self.false_sharing.iter().map(|line| self.false_sharing(line)));
        // What gains most comes first; without a prediction the order is that of the locks.
        let gain = |item: &Item| item.predicted.as_ref().map_or(f64::NEG_INFINITY, |predicted| predicted.gain);
        items.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
        items
    }

    fn lock(&self, lock: u32) -> Vec<Item> {
        let mut items = Vec::new();
        let Some(independent) = self.found.independent.get(&lock) else { return items };
        if independent.threads < 2 {
            return items;
        }
        items.extend(self.remove(lock));
        items.extend(self.split(lock));
        items.extend(self.readers(lock));
        items.extend(self.shorten(lock));
        items.extend(self.rare(lock));
        if items.is_empty() {
            items.extend(self.conflicting(lock));
        }
        items
    }

    fn remove(&self, lock: u32) -> Option<Item> {
        let all = self.sites_of(lock);
        let sites: BTreeSet<u32> = all.intersection(&self.found.remove).copied().collect();
        if sites.is_empty() {
            return None;
        }
        let unsound: BTreeSet<u32> = sites.iter().copied().filter(|&site| self.in_unsafe_pair(site)).collect();
        let sound: BTreeSet<u32> = sites.difference(&unsound).copied().collect();
        let name = self.lock_name(lock);
        let mut item = self.item(Kind::Remove, lock, &sites);
        if sound.is_empty() {
            item.cautions.clear();
            item.advice = format!(
                "Do not remove {name} at {}, though nothing that waited for it there needs it: it would be unsafe.",
                self.list(&sites)
            );
        } else if sound.len() == all.len() {
            item.advice = format!("Remove {name}: its sections need no lock.");
        } else {
            item.advice = format!("Take {name} no more at {}.", self.list(&sound));
        }
        for &site in &sound {
            let writes = self.sections.get(&(site, lock)).is_some_and(|section| section.writes > 0.0);
            let what = if writes {
                "shares nothing that is written with sections on other threads"
            } else {
                "only reads, and nothing that is written"
            };
            item.evidence.push(format!("{} {what}.", self.site_name(site)));
        }
        item.cautions.extend(self.unsafe_pairs(&unsound));
        if !sound.is_empty() {
            let rest: BTreeSet<u32> = all.difference(&sound).copied().collect();
            let groups = if rest.is_empty() { Vec::new() } else { vec![rest] };
            self.predict(&mut item, &Wish::Groups { lock, groups, free: sound });
        }
        Some(item)
    }

    fn split(&self, lock: u32) -> Option<Item> {
        let independent = self.found.independent.get(&lock)?;
        let sites = self.sites_of(lock);
        let name = self.lock_name(lock);
        let comes_apart = self.new_locks(lock).len() > 1;
        if independent.groups.len() < 2 {
            let unsound: BTreeSet<u32> = self
                .found
                .unsafe_pairs
                .iter()
                .filter(|(a, b)| sites.contains(a) && sites.contains(b))
                .flat_map(|&(a, b)| [a, b])
                .filter(|site| self.found.split.contains_key(site))
                .collect();
            // Waits alone would have it split, but not what is written.
            return (comes_apart && !unsound.is_empty()).then(|| {
                let mut item = self.item(Kind::Split, lock, &unsound);
                item.cautions.clear();
                item.advice = format!("Do not split {name} by who waited for whom: it would be unsafe.");
                item.cautions.extend(self.unsafe_pairs(&unsound));
                item
            });
        }
        let mut item = self.item(Kind::Split, lock, &sites);
        let groups: Vec<String> = independent.groups.iter().map(|group| self.list(group)).collect();
        item.advice = format!("Split {name} into {}: one lock for {}.", groups.len(), groups.join(", one for "));
        let about = |group: &BTreeSet<u32>| {
            let mut locations: Vec<String> = Vec::new();
            for &site in group {
                let Some(section) = self.sections.get(&(site, lock)) else { continue };
                for contended in &section.conflicting {
                    let text = self.records.location(contended.location).to_owned();
                    if !locations.contains(&text) {
                        locations.push(text);
                    }
                }
            }
            locations
        };
        for (group, text) in independent.groups.iter().zip(&groups) {
            item.evidence.push(format!("Among {text} conflicts are about {}.", listed(&about(group))));
        }
        item.evidence.push("Nothing that one group writes is accessed by another one.".to_owned());
        let (groups, free) = (independent.groups.clone(), independent.free.clone());
        self.predict(&mut item, &Wish::Groups { lock, groups, free });
        Some(item)
    }

    fn readers(&self, lock: u32) -> Option<Item> {
        let sites = self.sites_of(lock);
        let meet = |(writer, of): (&u32, &BTreeSet<u32>)| sites.contains(writer) && !of.is_disjoint(&sites);
        if !self.found.readers.iter().any(meet) {
            return None;
        }
        let writers: BTreeSet<u32> = self.found.readers.iter().filter(|&of| meet(of)).map(|(&site, _)| site).collect();
        let readers: BTreeSet<u32> = sites.difference(&self.found.writing).copied().collect();
        let mut item = self.item(Kind::ReaderWriter, lock, &sites);
        item.advice = format!(
            "Make {} a reader–writer lock: executions of {} could let each other in.",
            self.lock_name(lock),
            self.list(&readers)
        );
        let instances = |sites: &BTreeSet<u32>| -> u64 {
            sites.iter().filter_map(|&site| self.sections.get(&(site, lock))).map(|section| section.instances).sum()
        };
        let share = instances(&readers) as f64 / instances(&sites).max(1) as f64;
        item.evidence.push(format!(
            "{} only {} what {} {}: {} of the executions of the lock's sections.",
            self.list(&readers),
            if readers.len() == 1 { "reads" } else { "read" },
            self.list(&writers),
            if writers.len() == 1 { "writes" } else { "write" },
            percent(share)
        ));
        if share < FEW_READERS {
            item.cautions
                .push("Readers are few: a reader–writer lock is dearer than a mutex, and may gain nothing.".to_owned());
        } else {
            item.cautions
                .push("Taking a reader–writer lock is dearer than a mutex: for sections of less than a microsecond it seldom pays.".to_owned());
        }
        self.predict(&mut item, &Wish::Readers { lock, sites: readers });
        Some(item)
    }

    fn shorten(&self, lock: u32) -> Vec<Item> {
        let sites = self.sites_of(lock);
        let long = self.found.shorten.iter().filter(|(site, _)| sites.contains(site));
        long.filter_map(|(&site, window)| {
            let (share, first, last) = (window.outside_share()?, window.first?, window.last?);
            let mut item = self.item(Kind::Shorten, lock, &BTreeSet::from([site]));
            let place = |edge: super::patterns::Edge| {
                let code = edge.code.map(|code| format!(" at {}", self.records.code.text(code))).unwrap_or_default();
                format!("access {}{code} (`{}`)", edge.access, clip(self.records.location(edge.location), NAME))
            };
            item.advice = format!(
                "Hold {} in {} from {} to {} only: {} of its accesses need no lock.",
                self.lock_name(lock),
                self.site_name(site),
                place(first),
                place(last),
                percent(share)
            );
            item.evidence.push(format!(
                "First and last conflicting access of {}; accesses are counted from 0.",
                counted(window.conflicting, "execution")
            ));
            if window.known > window.conflicting {
                item.evidence.push(format!(
                    "{} more touched nothing that conflicts.",
                    counted(window.known - window.conflicting, "execution")
                ));
            }
            item.cautions.push(
                "What comes before and after may depend on what the lock guards without touching it: check that it does not."
                    .to_owned(),
            );
            self.predict(&mut item, &Wish::Shorten { site, by: share });
            if item.predicted.is_some() {
                item.cautions.push("For the gain, the share of the accesses stands for that of the time.".to_owned());
            }
            Some(item)
        })
        .collect()
    }

    fn rare(&self, lock: u32) -> Option<Item> {
        let sites = self.sites_of(lock);
        let mut adjacent = Adjacent::default();
        let mut rare: BTreeSet<u32> = BTreeSet::new();
        for (&(a, b), pair) in &self.patterns.pairs {
            if sites.contains(&a) && sites.contains(&b) && matches!(pair.pattern, Some((Pattern::LowDegreeConflict, _)))
            {
                rare.extend([a, b]);
                adjacent.pairs += pair.adjacent.pairs;
                adjacent.apart += pair.adjacent.apart;
            }
        }
        if rare.is_empty() {
            return None;
        }
        let mut item = self.item(Kind::RareConflicts, lock, &rare);
        item.advice = format!(
            "Conflicts of {} under {} are rare: one lock for each part of the data, or execution without a lock that is done again \
             after a conflict, would let most of them run side by side.",
            self.list(&rare),
            self.lock_name(lock)
        );
        let share = adjacent.share().unwrap_or_default();
        item.evidence.push(format!(
            "{} of {} had no conflict.",
            percent(share),
            counted(adjacent.pairs, "pair").replace(" pairs", " pairs of adjacent executions on different threads")
        ));
        item.evidence.extend(rare.iter().filter_map(|&site| self.conflicts_of(site, lock)));
        for &site in &rare {
            if let Some(&p) = self.p_conflict.get(&(site, lock)) {
                let name = self.site_name(site);
                item.evidence
                    .push(format!("An optimistic execution of {name} would conflict with probability {p:.3}."));
            }
        }
        self.predict(&mut item, &Wish::Shard { lock, parts: SHARDS });
        if item.predicted.is_some() {
            item.cautions.push(format!("The gain is that of {SHARDS} locks, of which sections ask for any at random."));
        }
        Some(item)
    }

    fn conflicting(&self, lock: u32) -> Option<Item> {
        let sites = self.sites_of(lock);
        let evidence: Vec<String> = sites.iter().filter_map(|&site| self.conflicts_of(site, lock)).collect();
        if evidence.is_empty() {
            return None;
        }
        let mut item = self.item(Kind::Conflicting, lock, &sites);
        item.advice = format!(
            "Keep {}: its sections conflict nearly always. What helps is to enter them less often, to do less inside, or to give each \
             thread data of its own that is joined later.",
            self.lock_name(lock)
        );
        item.evidence.extend(evidence);
        Some(item)
    }

    fn false_sharing(&self, line: &FalseSharing) -> Item {
        let locations: Vec<String> = line
            .locations
            .iter()
            .take(LISTED)
            .map(|at| {
                let who = match &at.written_by[..] {
                    [only] => format!("thread {only}"),
                    all => counted(all.len() as u64, "thread"),
                };
                format!("`{}` by {who}", clip(&at.name, NAME))
            })
            .collect();
        let mut cautions = Vec::new();
        if line.locations.iter().any(|at| !at.location.starts_with("0x")) {
            cautions.push("Symbols are taken to begin with a cache line: check their alignment.".to_owned());
        }
        if let [lock] = &line.locks[..] {
            cautions.push(format!(
                "Under one lock (`{}`) the line moves with the lock anyway: this counts once the lock is split or gone.",
                clip(lock, NAME)
            ));
        }
        Item {
            kind: Kind::FalseSharing,
            lock: if let [lock] = &line.locks[..] { lock.clone() } else { String::new() },
            sites: line.sites.clone(),
            advice: format!(
                "False sharing: give what {} write on the cache line of `{}` lines of their own (64 bytes apart).",
                listed(&line.sites),
                clip(&line.line, NAME)
            ),
            evidence: vec![
                format!("Written there: {}.", locations.join(", ")),
                format!("{} write one of them.", counted(line.instances, "sampled execution")),
            ],
            cautions,
            predicted: None,
            unpredictable: None,
        }
    }

    /// An item with what was sampled, and what that leaves open.
    fn item(&self, kind: Kind, lock: u32, sites: &BTreeSet<u32>) -> Item {
        let sections: Vec<(u32, &Section)> =
            sites.iter().filter_map(|&site| Some((site, self.sections.get(&(site, lock))?))).collect();
        let instances: u64 = sections.iter().map(|(_, section)| section.instances).sum();
        let threads: BTreeSet<u32> = sections.iter().flat_map(|(_, section)| section.threads.iter().copied()).collect();
        let mut evidence = vec![format!(
            "{} by {} in {}.",
            counted(instances, "execution"),
            counted(threads.len() as u64, "thread"),
            counted(self.records.runs.len() as u64, "run")
        )];
        let called = |&(site, _): &(u32, &Section)| Some((site, self.callers.get(&site)?));
        evidence.extend(
            sections
                .iter()
                .filter_map(called)
                .map(|(site, by)| format!("{} causes waiting, {by}.", self.site_name(site))),
        );
        let mut cautions = Vec::new();
        if let Some(&(site, fewest)) = sections.iter().min_by_key(|(_, section)| section.instances) {
            let name = self.site_name(site);
            if fewest.instances < FEW {
                cautions.push(format!("Few samples: {} of {name}.", counted(fewest.instances, "execution")));
            } else if !matches!(kind, Kind::Conflicting | Kind::FalseSharing) {
                cautions.push(format!(
                    "What fewer than {} of the executions of {name} do may not have been seen.",
                    percent(RULE_OF_THREE / fewest.instances as f64)
                ));
            }
        }
        cautions.extend(self.unseen_ways(&sections));
        for (site, section) in &sections {
            cautions.extend(self.one_sided(*site, lock));
            cautions.extend(self.calls(*site, lock));
            if section.cut > 0 {
                cautions.push(format!(
                    "{} of {} were not followed to their end.",
                    counted(section.cut, "execution"),
                    self.site_name(*site)
                ));
            }
        }
        if self.graph.sources.get(&lock) == Some(&EdgeSource::Order) {
            cautions.push(
                "No wait is known of: who took the lock right after whom stands for who would have waited for whom."
                    .to_owned(),
            );
        }
        Item {
            kind,
            lock: self.records.locks.text(lock).to_owned(),
            sites: self.names(sites),
            advice: String::new(),
            evidence,
            cautions,
            predicted: None,
            unpredictable: None,
        }
    }

    /// System calls in a section: a lock may guard what they do.
    fn calls(&self, site: u32, lock: u32) -> Option<String> {
        let calls = self.records.opaque.get(&(site, lock))?;
        let names: Vec<String> = calls.keys().map(|&call| self.records.calls.text(call).to_owned()).collect();
        let name = self.site_name(site);
        Some(format!("{name} makes system calls ({}): the lock may guard what they do.", listed(&names)))
    }

    /// How much of the ways through sections was probably not seen: as many executions as went a way that no other went
    /// (Good and Turing).
    fn unseen_ways(&self, sections: &[(u32, &Section)]) -> Vec<String> {
        let (mut unknown, mut settled, mut told) = (BTreeSet::new(), Vec::new(), Vec::new());
        for &(site, section) in sections {
            let once = section.ways.values().filter(|&&n| n == 1).count() as u64;
            if section.ways_known == 0 {
                unknown.insert(site);
            } else if once == 0 {
                settled.push(format!("{} ({})", self.site_name(site), count(section.ways.len() as u64)));
            } else {
                told.push(format!(
                    "{} through {} were seen, {} of them once only: about {} of its executions go a way that was not seen.",
                    counted(section.ways.len() as u64, "way"),
                    self.site_name(site),
                    count(once),
                    percent(once as f64 / section.ways_known as f64)
                ));
            }
        }
        if !settled.is_empty() {
            told.push(format!(
                "Each way seen through {} was seen more than once; others may not have been exercised.",
                settled.join(", ")
            ));
        }
        if !unknown.is_empty() {
            told.push(format!("The records do not tell which ways through {} were taken.", self.list(&unknown)));
        }
        told
    }

    /// Branches in a section of which one side only was seen: how many, and where.
    fn one_sided(&self, site: u32, lock: u32) -> Option<String> {
        let branches = self.records.branches.get(&(site, lock))?;
        let name = self.site_name(site);
        let all = count(branches.len() as u64);
        let one_sided: Vec<_> = branches.iter().filter(|(_, branch)| branch.is_one_sided()).collect();
        if one_sided.is_empty() {
            return Some(format!("Of each conditional branch in {name} ({all}) both sides were seen."));
        }
        let place = |(place, branch): &(&u32, &Branch)| match branch.code {
            Some(code) => self.records.code.text(code).to_owned(),
            None => self.records.branch_places.text(**place).to_owned(),
        };
        let places: BTreeSet<String> = one_sided.iter().map(place).collect();
        Some(format!(
            "Of the conditional branches in {name} ({all}) {} went one way only, and what lies the other way was not seen: {}.",
            count(one_sided.len() as u64),
            listed(&places.into_iter().collect::<Vec<_>>())
        ))
    }

    fn conflicts_of(&self, site: u32, lock: u32) -> Option<String> {
        let section = self.sections.get(&(site, lock))?;
        let of = |n: u64| percent(n as f64 / section.instances.max(1) as f64);
        let told: Vec<String> = section
            .conflicting
            .iter()
            .take(LISTED)
            .map(|about| {
                let location = clip(self.records.location(about.location), NAME);
                match about.written {
                    0 => format!("`{location}` (read by {})", of(about.accessed)),
                    n if n == about.accessed => format!("`{location}` (written by {})", of(n)),
                    n => format!("`{location}` (accessed by {}, written by {})", of(about.accessed), of(n)),
                }
            })
            .collect();
        (!told.is_empty()).then(|| {
            format!("{} conflicts about {}; shares are of its executions.", self.site_name(site), told.join(", "))
        })
    }

    fn predict(&self, item: &mut Item, wish: &Wish) {
        match self.predictor.map(|predictor| predictor.gain(wish)) {
            None => {}
            Some(Ok(gain)) => item.predicted = Some(gain),
            Some(Err(reason)) => item.unpredictable = Some(reason),
        }
    }

    fn in_unsafe_pair(&self, site: u32) -> bool {
        self.found.unsafe_pairs.iter().any(|&(a, b)| a == site || b == site)
    }

    /// What is unsafe about these sites, in words.
    fn unsafe_pairs(&self, sites: &BTreeSet<u32>) -> Vec<String> {
        let pairs: Vec<_> =
            self.found.unsafe_pairs.iter().filter(|(a, b)| sites.contains(a) || sites.contains(b)).collect();
        let mut told: Vec<String> = pairs
            .iter()
            .take(LISTED)
            .map(|&&(a, b)| {
                let about = self.common(a, b);
                let (a, b) = (self.site_name(a), self.site_name(b));
                let (a, b) = if a <= b { (a, b) } else { (b, a) };
                if a == b {
                    format!("UNSAFE: {a} conflicts with itself on another thread, about {about}.")
                } else {
                    format!("UNSAFE: {a} and {b} conflict, about {about}, and would have no lock in common.")
                }
            })
            .collect();
        if pairs.len() > LISTED {
            told.push(format!("UNSAFE: {} conflict, too.", counted((pairs.len() - LISTED) as u64, "more pair")));
        }
        told
    }

    /// What two sites conflict about.
    fn common(&self, a: u32, b: u32) -> String {
        let sets = |site: u32| {
            let (mut all, mut written) = (BTreeSet::new(), BTreeSet::new());
            for node in self.graph.nodes.iter().filter(|node| node.site == site) {
                all.extend(node.reads.iter().chain(&node.writes).copied());
                written.extend(node.writes.iter().copied());
            }
            (all, written)
        };
        let ((all_a, written_a), (all_b, written_b)) = (sets(a), sets(b));
        let both = written_a.intersection(&all_b).chain(written_b.intersection(&all_a)).copied();
        let mut names: Vec<String> =
            both.collect::<BTreeSet<u32>>().into_iter().map(|l| self.records.location(l).to_owned()).collect();
        names.sort();
        listed(&names)
    }

    fn sites_of(&self, lock: u32) -> BTreeSet<u32> {
        self.sections.keys().filter(|key| key.1 == lock).map(|key| key.0).collect()
    }

    /// The new locks of a lock's sites.
    fn new_locks(&self, lock: u32) -> BTreeSet<u32> {
        let sites = self.sites_of(lock);
        self.found
            .split
            .iter()
            .filter(|(site, _)| sites.contains(site))
            .flat_map(|(_, new)| new.iter().copied())
            .collect()
    }

    fn names(&self, sites: &BTreeSet<u32>) -> Vec<String> {
        let mut names: Vec<String> = sites.iter().map(|&site| self.records.sites.text(site).to_owned()).collect();
        names.sort();
        names
    }

    fn list(&self, sites: &BTreeSet<u32>) -> String {
        listed(&self.names(sites))
    }

    fn site_name(&self, site: u32) -> String {
        format!("`{}`", clip(self.records.sites.text(site), NAME))
    }

    fn lock_name(&self, lock: u32) -> String {
        format!("`{}`", clip(self.records.locks.text(lock), NAME))
    }
}
