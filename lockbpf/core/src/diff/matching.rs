//! Pairs what both recordings name alike: first by the whole name, then, of what is left and unique, without line
//! numbers, which change from one version of a program to the next.

use std::collections::BTreeMap;

/// Both sides of one thing; at least one is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair<'a, K, V> {
    pub(super) a: Option<(&'a K, &'a V)>,
    pub(super) b: Option<(&'a K, &'a V)>,
}

/// Pairs two tables; `loose` makes the key without line numbers.
pub(super) fn pairs<'a, K: Ord, V>(
    a: &'a BTreeMap<K, V>,
    b: &'a BTreeMap<K, V>,
    loose: impl Fn(&K) -> K,
) -> Vec<Pair<'a, K, V>> {
    let mut pairs: Vec<Pair<'_, K, V>> = Vec::new();
    for (key, value) in a {
        if let Some(other) = b.get_key_value(key) {
            pairs.push(Pair { a: Some((key, value)), b: Some(other) });
        }
    }
    let mut left: BTreeMap<K, [Vec<(&K, &V)>; 2]> = BTreeMap::new();
    for entry in a.iter().filter(|(key, _)| !b.contains_key(key)) {
        left.entry(loose(entry.0)).or_default()[0].push(entry);
    }
    for entry in b.iter().filter(|(key, _)| !a.contains_key(key)) {
        left.entry(loose(entry.0)).or_default()[1].push(entry);
    }
    for [a, b] in left.into_values() {
        match (&a[..], &b[..]) {
            (&[a], &[b]) => pairs.push(Pair { a: Some(a), b: Some(b) }),
            _ => {
                pairs.extend(a.into_iter().map(|a| Pair { a: Some(a), b: None }));
                pairs.extend(b.into_iter().map(|b| Pair { a: None, b: Some(b) }));
            }
        }
    }
    pairs
}

/// `lock in flush (wal.c:210) #2` as `lock in flush (wal.c) #2`.
pub(super) fn without_line(name: &str) -> String {
    let without = name.rfind(')').and_then(|close| {
        let (head, tail) = name.split_at(close);
        let (before, line) = head.rsplit_once(':')?;
        let number = !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit());
        number.then(|| format!("{before}{tail}"))
    });
    without.unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(keys: &[&str]) -> BTreeMap<String, ()> {
        keys.iter().map(|&key| (key.to_owned(), ())).collect()
    }

    fn paired(a: &[&str], b: &[&str]) -> Vec<(Option<String>, Option<String>)> {
        let (a, b) = (table(a), table(b));
        let name = |side: Option<(&String, &())>| side.map(|(key, ())| key.clone());
        pairs(&a, &b, |key| without_line(key)).into_iter().map(|p| (name(p.a), name(p.b))).collect()
    }

    #[test]
    fn equal_names_go_first() {
        let some = |name: &str| Some(name.to_owned());
        // A line that both have is no candidate for another one.
        assert_eq!(
            paired(&["f (x.c:1)", "f (x.c:5)"], &["f (x.c:1)", "f (x.c:7)"]),
            [(some("f (x.c:1)"), some("f (x.c:1)")), (some("f (x.c:5)"), some("f (x.c:7)"))]
        );
        assert_eq!(paired(&["a"], &["b"]), [(some("a"), None), (None, some("b"))]);
    }

    #[test]
    fn nothing_is_guessed() {
        let pairs = paired(&["f (x.c:1)"], &["f (x.c:2)", "f (x.c:3)"]);
        assert!(pairs.iter().all(|(a, b)| a.is_none() || b.is_none()), "{pairs:?}");
        assert_eq!(pairs.len(), 3);
    }

    #[test]
    fn lines_are_cut_out() {
        for (name, without) in [
            ("lock in flush (wal.c:210) #2", "lock in flush (wal.c) #2"),
            ("f (x.c:)", "f (x.c:)"),
            ("std::f()", "std::f()"),
            ("cache_lock", "cache_lock"),
            ("f (a:1:22)", "f (a:1)"),
        ] {
            assert_eq!(without_line(name), without);
        }
    }
}
