-- A session's secret was a cookie, which browsers sent to every port of the host: whoever listened
-- there may have it. Everybody signs in anew. What was not used yet of links was in no cookie.
DELETE FROM web_sessions;
