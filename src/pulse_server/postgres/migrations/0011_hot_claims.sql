-- Reserved for claims that write no index.
SELECT 1;
