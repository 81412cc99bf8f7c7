//! Random schedules of two connections, and octets that are cut short or corrupted: nothing is lost, every run ends, all
//! credit returns, and nothing panics.

mod budget;
mod damage;
mod hostile;
mod scenario;
mod schedules;
mod short_way;
