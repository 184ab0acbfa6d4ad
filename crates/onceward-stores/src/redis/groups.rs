//! Divides a batch into script calls.

/// Records in one script call: Redis answers no other client while a script runs. With fewer, a batch of the engine has more
/// than one call, and each may have a sync of its own.
const CALL_RECORDS_MAX: usize = 512;
/// Bytes of receipts in one script call; a call always has at least one.
const CALL_BYTES_MAX: usize = 8 << 20;

/// Divides what has a bucket and a size into script calls.
pub(super) fn groups<T: Clone>(all: &[T], place: impl Fn(&T) -> (usize, usize)) -> Vec<Vec<T>> {
    let mut placed: Vec<(usize, usize, &T)> = all
        .iter()
        .map(|item| {
            let (bucket, bytes) = place(item);
            (bucket, bytes, item)
        })
        .collect();
    placed.sort_by_key(|(bucket, ..)| *bucket);
    let mut groups: Vec<Vec<T>> = Vec::new();
    let (mut last_bucket, mut group_bytes) = (usize::MAX, 0);
    for (bucket, bytes, item) in placed {
        group_bytes += bytes;
        let fits = |group: &Vec<T>| group.len() < CALL_RECORDS_MAX && group_bytes <= CALL_BYTES_MAX;
        match groups.last_mut().filter(|group| bucket == last_bucket && fits(group)) {
            Some(group) => group.push(item.clone()),
            None => {
                groups.push(vec![item.clone()]);
                (last_bucket, group_bytes) = (bucket, bytes);
            }
        }
    }
    groups
}
