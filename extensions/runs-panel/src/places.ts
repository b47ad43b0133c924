// Each tab below the app's graph, with its top-level tab (place), as in `workbench/ui/app/places.py`. The command palette has an entry for each tab.

export const PLACES: ReadonlyArray<readonly [string, string]> = [
  ["Memory", "Curve and peak"],
  ["Time", "Compile"],
  ["Time", "Timeline"],
  ["Choices", "Single choices"],
  ["Choices", "Fit"],
  ["Choices", "Chosen"],
  ["Choices", "Sites"],
  ["Choices", "Settings"],
  ["Program", "Outline"],
  ["Program", "Fusions"],
  ["Program", "Passes"],
  ["Program", "Trace"],
  ["Experiments", "Runs"],
];
