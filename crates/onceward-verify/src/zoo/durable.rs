//! Services that store receipts in files, to be killed and started again. The journal is correct; the others are not.

use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use super::charges::Charges;
use super::receipt_map::{Receipt, ReceiptMap};
use super::server::{Answering, Ask, Reply, Service};

/// What comes after the effect takes its time, too.
const AFTERWARDS: Duration = Duration::from_millis(20);

/// A window that is hit by chance only now and then.
const JUST_AFTERWARDS: Duration = Duration::from_millis(4);

/// What a journal makes of a claim whose process was killed before its effect was in the books.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterCrash {
    /// Nothing is known of it: the key is free.
    Free,
    /// It is held until an operator settles it, as if the effect were not in the books.
    Held,
    /// The same, said in other words than RFC 9457 has.
    HeldInOwnWords,
    /// The first who asks waits for it for longer than any lease and is told to come again; then it is free.
    WaitedFor,
}

/// How long a claim is waited for that nobody has any more.
const WAITED_FOR: Duration = Duration::from_millis(1_800);

/// Effect and receipt are one line of the books: there is never one without the other.
pub(super) struct Journal {
    after_crash: AfterCrash,
    /// The status of a replay, if it is another than that of the answer.
    replayed_as: Option<u16>,
    claims: PathBuf,
    /// Claims of a killed process.
    abandoned: Mutex<HashSet<String>>,
    receipt_map: ReceiptMap,
    /// The request, by id.
    asked: Mutex<HashMap<String, String>>,
}

impl Journal {
    pub(super) fn open(after_crash: AfterCrash, charges: &Charges) -> Self {
        let claims = charges.folder().join("claims");
        let claimed = std::fs::read_to_string(&claims).unwrap_or_default();
        let journal = Self {
            after_crash,
            replayed_as: None,
            claims,
            abandoned: Mutex::new(claimed.lines().map(str::to_owned).collect()),
            receipt_map: ReceiptMap::default(),
            asked: Mutex::default(),
        };
        for (id, reply, body) in lines(&charges.folder().join("effects")) {
            journal.is_asked(&id, &body);
            journal.abandoned.lock().expect("nobody panics with it in hand").remove(&id);
            journal.receipt_map.done(&id, reply);
        }
        journal
    }

    /// The same, with this status for replays.
    pub(super) fn replaying_as(mut self, status: u16) -> Self {
        self.replayed_as = Some(status);
        self
    }

    /// Whether this is what was asked under this id; the first to ask decides.
    fn is_asked(&self, id: &str, body: &str) -> bool {
        let mut asked = self.asked.lock().expect("nobody panics with it in hand");
        asked.entry(id.to_owned()).or_insert_with(|| body.to_owned()) == body
    }

    async fn answer(&self, ask: Ask, charges: &Charges) -> Reply {
        match ReceiptMap::id(&ask) {
            Ok(id) if self.is_asked(&id, &written(&ask)) => {}
            Ok(_) => return Reply::key_reused(),
            Err(refusal) => return refusal,
        }
        let id = match self.receipt_map.claim_or_wait(&ask).await {
            Ok(id) => id,
            Err(answer) => return Reply { status: self.replayed_as.unwrap_or(answer.status), ..answer },
        };
        if let Some(refusal) = self.abandoned(&id).await {
            self.receipt_map.free(&id);
            return refusal;
        }
        if self.after_crash != AfterCrash::Free {
            append(&self.claims, &id);
        }
        if let Err(failure) = charges.work(&ask).await {
            self.receipt_map.free(&id);
            return failure;
        }
        let reply = charges.receipt(&ask);
        charges.effect(&line(&id, &reply, &written(&ask)));
        tokio::time::sleep(AFTERWARDS).await;
        self.receipt_map.done(&id, reply)
    }
}

impl Journal {
    /// What one who asks is told of a claim of a killed process.
    async fn abandoned(&self, id: &str) -> Option<Reply> {
        let is_abandoned = |id: &str| {
            let mut abandoned = self.abandoned.lock().expect("nobody panics with it in hand");
            if self.after_crash == AfterCrash::WaitedFor {
                abandoned.remove(id)
            } else {
                abandoned.contains(id)
            }
        };
        if !is_abandoned(id) {
            return None;
        }
        match self.after_crash {
            AfterCrash::Held => return Some(Reply::outcome_unknown()),
            AfterCrash::HeldInOwnWords => return Some(Reply::plain(409, r#"{"code":"ASK_SUPPORT"}"#)),
            AfterCrash::Free | AfterCrash::WaitedFor => {}
        }
        tokio::time::sleep(WAITED_FOR).await;
        Some(Reply::in_progress())
    }
}

impl Service for Journal {
    fn answer<'a>(&'a self, ask: Ask, charges: &'a Charges) -> Answering<'a> {
        Box::pin(self.answer(ask, charges))
    }
}

/// A flaw of a service that writes its receipts beside its effects.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flaw {
    /// A claim lasts for as long as an answer would: after a crash, a day of 409.
    ClaimLastsForADay,
    /// The receipt is written after the effect, and a crash between the two leaves the key free.
    EffectBeforeReceipt,
    /// The same, with little time between the two.
    EffectJustBeforeReceipt,
    /// The answer leaves before the receipt is written, because writing is slow.
    WrittenBehind,
    /// What was begun and has no receipt is done again at the next start, whether it had its effect or not.
    RerunsOnStart,
}

/// What a line of [`Flaw::RerunsOnStart`] says of its key.
const BEGUN: &str = "begun";
const DONE: &str = "done";
const FREED: &str = "freed";

pub(super) struct Beside {
    flaw: Flaw,
    receipt_map: ReceiptMap,
    receipts: PathBuf,
}

impl Beside {
    pub(super) fn open(flaw: Flaw, charges: &Charges) -> Self {
        let (receipt_map, receipts) = (ReceiptMap::default(), charges.folder().join("receipts"));
        if flaw == Flaw::RerunsOnStart {
            rerun(&receipt_map, &receipts, charges);
            return Self { flaw, receipt_map, receipts };
        }
        for (id, reply, _) in lines(&receipts) {
            // A claim of a process that is gone.
            if reply.status != 0 {
                receipt_map.done(&id, reply);
            } else if receipt_map.receipt_of(&id).is_none() {
                let _ = receipt_map.claim(&id);
            }
        }
        Self { flaw, receipt_map, receipts }
    }

    async fn answer(&self, ask: Ask, charges: &Charges) -> Reply {
        let id = match ReceiptMap::id(&ask) {
            Ok(id) => id,
            Err(refusal) => return refusal,
        };
        match self.receipt_map.claim(&id) {
            Ok(()) => {}
            Err(Receipt::Done(reply)) => return reply,
            Err(Receipt::Held) => return Reply::in_progress(),
        }
        if self.flaw == Flaw::ClaimLastsForADay {
            self.write(&line(&id, &Reply::plain(0, ""), ""));
        }
        let reply = charges.receipt(&ask);
        let reruns = self.flaw == Flaw::RerunsOnStart;
        if reruns {
            self.write(&line(&id, &reply, BEGUN));
        }
        if let Err(failure) = charges.work(&ask).await {
            if reruns {
                self.write(&line(&id, &failure, FREED));
            }
            self.receipt_map.free(&id);
            return failure;
        }
        charges.effect("");
        let receipt = line(&id, &reply, if reruns { DONE } else { "" });
        if self.flaw == Flaw::WrittenBehind {
            let receipts = self.receipts.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                append(&receipts, &receipt);
            });
        } else {
            let narrow = self.flaw == Flaw::EffectJustBeforeReceipt;
            tokio::time::sleep(if narrow { JUST_AFTERWARDS } else { AFTERWARDS }).await;
            self.write(&receipt);
        }
        self.receipt_map.done(&id, reply)
    }

    fn write(&self, line: &str) {
        append(&self.receipts, line);
    }
}

/// Does again what was begun, and puts all answers there.
fn rerun(receipt_map: &ReceiptMap, receipts: &Path, charges: &Charges) {
    let mut last = HashMap::new();
    for (id, reply, state) in lines(receipts) {
        last.insert(id, (reply, state));
    }
    for (id, (reply, state)) in last {
        if state == BEGUN {
            charges.effect("");
            append(receipts, &line(&id, &reply, DONE));
        }
        if state != FREED {
            receipt_map.done(&id, reply);
        }
    }
}

impl Service for Beside {
    fn answer<'a>(&'a self, ask: Ask, charges: &'a Charges) -> Answering<'a> {
        Box::pin(self.answer(ask, charges))
    }
}

fn append(path: &Path, line: &str) {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let write = |mut file: File| file.write_all(format!("{line}\n").as_bytes());
    file.and_then(write).expect("the file is writable");
}

/// A body as it is written into a line: without tabs and line feeds of its own.
fn written(ask: &Ask) -> String {
    format!("{:?}", ask.body)
}

fn line(id: &str, reply: &Reply, asked: &str) -> String {
    let fields: Vec<&str> = reply.fields.iter().map(|(_, value)| value.as_str()).collect();
    format!("{id}\t{}\t{}\t{}\t{asked}", reply.status, fields.join("\u{1f}"), reply.body)
}

fn lines(path: &Path) -> Vec<(String, Reply, String)> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<(String, Reply, String)> {
    let [id, status, fields, body, asked] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
    let names = ["content-type", "location"];
    let values = fields.split('\u{1f}').filter(|value| !value.is_empty()).map(str::to_owned);
    let fields = names.into_iter().zip(values).collect();
    Some((
        id.to_owned(),
        Reply { status: status.parse().ok()?, fields, body: body.to_owned() },
        asked.to_owned(),
    ))
}
