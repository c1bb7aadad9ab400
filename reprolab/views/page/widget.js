// Entry of the live view: the kernel's widget is the model.

import { render } from "./divergence.js";

export default { render };
