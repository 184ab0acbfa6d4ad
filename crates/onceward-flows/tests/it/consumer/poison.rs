//! A message that ends its process is recognised; its neighbours, and clean stops, are not blamed.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use onceward_flows::Received;
use onceward_stores::sql::postgres::PostgresTx;

use super::{Running, Stock, locally, note, order, short_lease};

const DEAD: &str = "SELECT coalesce(string_agg(convert_from(payload, 'UTF8') || ': ' || error, ''), '')
    FROM onceward_dead_letters";

#[tokio::test]
async fn a_message_that_ends_its_process_is_given_up_after_five_deaths() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        stock.commit([order("a", 1), order("poison", "poison"), order("b", 1)]).await;
        let mut deaths = 0;
        loop {
            let consumer = stock.consumer().with_options(short_lease());
            let dies = Rc::new(Cell::new(false));
            let reached = dies.clone();
            let running = Running::start_with(&consumer, move |received: Received, tx: PostgresTx| {
                let reached = reached.clone();
                async move {
                    if &received.message.payload()[..] == b"poison" {
                        reached.set(true);
                        std::future::pending::<()>().await;
                    }
                    note(&received, &tx).await
                }
            });
            while !dies.get() && stock.database.sql(DEAD).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if !dies.get() {
                running.stop().await;
                break;
            }
            running.kill().await;
            deaths += 1;
            assert!(deaths <= 5, "it was not recognised");
        }
        assert_eq!(deaths, 5);
        assert_eq!(stock.database.sql(DEAD), "poison: it ended its process 5 times");
        let running = Running::start(&stock.consumer());
        stock.until_effects("a", "1").await;
        stock.until_effects("b", "1").await;
        running.stop().await;
    })
    .await;
}

#[tokio::test]
async fn clean_stops_leave_no_mark() {
    locally(async {
        let Some(stock) = Stock::fresh().await else { return };
        for number in 0..8 {
            let running = Running::start(&stock.consumer());
            stock.commit([order("a", number)]).await;
            stock.until("SELECT count(*) FROM onceward_outbox", "0").await;
            running.stop().await;
            assert_eq!(stock.database.sql("SELECT count(*) FROM onceward_tries"), "0");
        }
        assert_eq!(stock.effects("a"), "0 1 2 3 4 5 6 7");
    })
    .await;
}
