//! How often each lock is visited: the stationary distribution of the routing from lock to lock.

use super::error::{ModelError, checked};

/// What the shares of a row may miss of 1.
const TOLERANCE: f64 = 1e-6;

/// Shares of visits: v with v = v·r and Σ v = 1. A lock that is left for ever has share 0.
///
/// By the algorithm of Grassmann, Taksar and Heyman, which never subtracts and so loses no digits.
///
/// # Errors
/// When r is not a stochastic matrix of at least one row, or has more than one closed set of locks: then the shares depend
/// on where a thread begins. `field` is what messages call r.
pub fn stationary(r: &[Vec<f64>], field: &str) -> Result<Vec<f64>, ModelError> {
    let mut rows = Vec::with_capacity(r.len());
    for (i, row) in r.iter().enumerate() {
        if row.len() != r.len() {
            let problem = format!("has {} columns for {} locks", row.len(), r.len());
            return Err(ModelError::invalid(format!("{field}[{i}]"), problem));
        }
        let mut sum = 0.0;
        for (j, &share) in row.iter().enumerate() {
            sum += checked(share, || format!("{field}[{i}][{j}]"))?;
        }
        if (sum - 1.0).abs() > TOLERANCE {
            return Err(ModelError::invalid(format!("{field}[{i}]"), format!("the shares add up to {sum}, not to 1")));
        }
        rows.push(row.iter().map(|share| share / sum).collect::<Vec<_>>());
    }
    if rows.is_empty() {
        return Err(ModelError::invalid(field, "there are no locks"));
    }
    let closed = closed_set(&rows).ok_or_else(|| {
        let problem = "threads that begin at different locks never meet: describe them as classes";
        ModelError::invalid(field, problem)
    })?;
    let mut a: Vec<Vec<f64>> = closed.iter().map(|&i| closed.iter().map(|&j| rows[i][j]).collect()).collect();
    for n in (1..a.len()).rev() {
        let (above, rest) = a.split_at_mut(n);
        let last = &rest[0][..n];
        let leaves: f64 = last.iter().sum();
        for row in above {
            row[n] /= leaves;
            let share = row[n];
            if share > 0.0 {
                row.iter_mut().zip(last).for_each(|(to, &from)| *to += share * from);
            }
        }
    }
    let mut x = vec![1.0; a.len()];
    for n in 1..a.len() {
        x[n] = (0..n).map(|i| x[i] * a[i][n]).sum();
    }
    let sum: f64 = x.iter().sum();
    let mut visits = vec![0.0; rows.len()];
    closed.iter().zip(x).for_each(|(&i, x)| visits[i] = x / sum);
    Ok(visits)
}

/// The locks among which a thread stays in the end, if that is one set.
fn closed_set(rows: &[Vec<f64>]) -> Option<Vec<usize>> {
    let from = |i: usize, seen: &mut [bool], forward: bool| {
        let mut stack = vec![i];
        seen[i] = true;
        while let Some(at) = stack.pop() {
            for next in 0..rows.len() {
                let share = if forward { rows[at][next] } else { rows[next][at] };
                if share > 0.0 && !seen[next] {
                    seen[next] = true;
                    stack.push(next);
                }
            }
        }
    };
    // If some lock is reached from all others, then the last one not yet covered by those before is one.
    let mut seen = vec![false; rows.len()];
    let mut candidate = 0;
    for i in 0..rows.len() {
        if !seen[i] {
            candidate = i;
            from(i, &mut seen, false);
        }
    }
    let mut reaches_it = vec![false; rows.len()];
    from(candidate, &mut reaches_it, false);
    if reaches_it.contains(&false) {
        return None;
    }
    let mut closed = vec![false; rows.len()];
    from(candidate, &mut closed, true);
    Some(closed.iter().enumerate().filter_map(|(i, &is)| is.then_some(i)).collect())
}
