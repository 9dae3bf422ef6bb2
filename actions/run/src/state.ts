// What `main` leaves for `post`, which is another process.

/** The names under which it does. `asked` is when `main` heard of a cancel, in milliseconds of the epoch. */
export const STATE = { events: "events", program: "program", verb: "verb", end: "end", asked: "asked" } as const;

/** How `main` ended. Without a word it was killed, or dcctl's front was. */
export type End = "" | "over" | "asked" | "left";
