//! The lab from outside: replays that compare modes, experiments, the scoreboard, the pages.

mod replay;
