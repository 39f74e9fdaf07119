// Loaded by mocha before the tests of mongoose's plugins: makes them connect to KAURI_URI.
"use strict";

const mongoose = require("mongoose");

const connect = mongoose.connect;
mongoose.connect = (uri, ...rest) =>
  connect.call(mongoose, uri.replace(/^mongodb:\/\/localhost\//, process.env.KAURI_URI), ...rest);
