//! Outcomes as JSON, behind the feature `serde`.

use std::future::Future;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::{Completed, Lease};
use crate::error::{Error, ErrorKind, Result};
use crate::outcome::{Outcome, Stopped};

impl Outcome {
    /// A success whose answer is `value` as JSON. Fails if the value cannot be written as JSON.
    ///
    /// ```
    /// let outcome = onceward::Outcome::json(&vec![1, 2])?;
    /// assert_eq!(&outcome.body()[..], b"[1,2]");
    /// # Ok::<(), onceward::Error>(())
    /// ```
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self> {
        let body = serde_json::to_vec(value).map_err(|error| {
            Error::new(ErrorKind::Invalid, "a value cannot be written as JSON").caused_by(error)
        })?;
        Ok(Self::succeeded(body))
    }

    /// The answer, read as JSON. Fails if it is not the JSON of a `T`, or was not kept.
    pub fn read_json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(self.body()).map_err(|error| {
            Error::new(ErrorKind::Invalid, "an outcome is not the JSON of this type").caused_by(error)
        })
    }
}

impl Completed {
    /// The answer, read as JSON: of this very call, or recorded by another. Fails if it is not the JSON of a `T`.
    ///
    /// ```
    /// # use onceward::*;
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Charge { amount: u32 }
    /// # async fn example(onceward: Onceward, ask: Ask) -> Result<(), Box<dyn std::error::Error>> {
    /// let charge = async |_| Ok(Outcome::json(&Charge { amount: 12 })?);
    /// let charge: Charge = onceward.run(ask, charge).await?.into_result()?.json()?;
    /// # Ok(()) }
    /// ```
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        self.outcome.read_json()
    }
}

impl Lease {
    /// Runs a [step](Lease::step) that produces a value, and gives the value: made now, or recorded by an earlier run
    /// of the intent. It is stored as JSON, so a later version of the code must still be able to read it.
    ///
    /// A step that is refused (held by a previous owner, unknown) stops the work, as does a recorded value that is not
    /// the JSON of a `T`.
    ///
    /// ```
    /// # use onceward::*;
    /// async fn pay_out(lease: Lease) -> Result<Outcome, Stopped> {
    ///     let transfer: u64 = lease.step_json("transfer", async |_| Ok(81)).await?;
    ///     Ok(Outcome::succeeded(format!("transfer {transfer}")))
    /// }
    /// ```
    pub async fn step_json<T, F, W>(&self, name: &str, work: F) -> Result<T, Stopped>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce(Lease) -> W,
        W: Future<Output = Result<T, Stopped>>,
    {
        let step = self.step(name, |lease| {
            let working = work(lease);
            async move { Ok(Outcome::json(&working.await?)?) }
        });
        Ok(step.await?.into_result()?.json()?)
    }
}
