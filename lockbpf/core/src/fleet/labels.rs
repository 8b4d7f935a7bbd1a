//! Container, pod and unit of the observed processes.

use super::{Column, Words};
use crate::cgroup;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What the cgroup of a process is called by, in columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Label {
    container_id: Option<Bytes>,
    pod: Option<Bytes>,
    unit: Option<Bytes>,
}

impl Label {
    fn of(path: &str) -> Self {
        let word = |text: &str| Bytes::from(text.to_owned());
        Self {
            container_id: cgroup::container_id(path).map(word),
            pod: cgroup::pod_uid(path).map(Bytes::from),
            unit: cgroup::unit(path).map(word),
        }
    }
}

/// Container, pod and unit by process id, as far as they are known.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels(BTreeMap<u32, Label>);

impl Labels {
    /// Those of processes in these cgroups.
    pub(super) fn of(cgroups: &BTreeMap<u32, String>) -> Self {
        Self(cgroups.iter().map(|(&pid, path)| (pid, Label::of(path))).collect())
    }

    /// Columns for rows that each name one of these processes by its index among them.
    pub(super) fn of_rows(
        &self,
        names: [&'static str; 3],
        pids: &[Option<u32>],
        rows: impl Iterator<Item = Option<usize>> + Clone,
    ) -> Vec<(&'static str, Column)> {
        let labels: Vec<Option<&Label>> = pids.iter().map(|pid| self.0.get(&(*pid)?)).collect();
        columns(names, &labels, rows)
    }

    /// Columns for one row: what all processes have in common.
    pub(super) fn common(&self, names: [&'static str; 3]) -> Vec<(&'static str, Column)> {
        let mut labels = self.0.values();
        let mut common = labels.next().cloned().unwrap_or_default();
        for label in labels {
            let Label { container_id, pod, unit } = label;
            for (ours, theirs) in
                [(&mut common.container_id, container_id), (&mut common.pod, pod), (&mut common.unit, unit)]
            {
                ours.take_if(|ours| Some(&*ours) != theirs.as_ref());
            }
        }
        columns(names, &[Some(&common)], std::iter::once(Some(0)))
    }
}

fn columns(
    names: [&'static str; 3],
    labels: &[Option<&Label>],
    rows: impl Iterator<Item = Option<usize>> + Clone,
) -> Vec<(&'static str, Column)> {
    let parts: [fn(&Label) -> &Option<Bytes>; 3] = [|l| &l.container_id, |l| &l.pod, |l| &l.unit];
    let column = |part: fn(&Label) -> &Option<Bytes>| {
        let words: Arc<[Option<Bytes>]> = labels.iter().map(|label| part((*label)?).clone()).collect();
        Column::Text(Words::of(&words, rows.clone()))
    };
    names.into_iter().zip(parts.map(column)).collect()
}
