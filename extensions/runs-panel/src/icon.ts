// The workbench's icon: the two columns of the U, with saved tensors between them.

import { LabIcon } from "@jupyterlab/ui-components";

export const icon = new LabIcon({
  name: "thunder-workbench:icon",
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 24 24">
  <g class="jp-icon3" fill="#616161"><rect x="3" y="3" width="6" height="4" rx="1"/><rect x="3" y="10" width="6" height="4" rx="1"/>
  <rect x="3" y="17" width="6" height="4" rx="1"/><rect x="15" y="3" width="6" height="4" rx="1"/>
  <rect x="15" y="10" width="6" height="4" rx="1"/><rect x="15" y="17" width="6" height="4" rx="1"/>
  <rect x="9" y="4.3" width="6" height="1.4"/><rect x="9" y="11.3" width="6" height="1.4"/><rect x="9" y="18.3" width="6" height="1.4"/></g></svg>`,
});
